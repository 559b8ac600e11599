// The Markdown that models write, as a tree of plain objects. Pure functions; HTML in the text stays text.
//
//   block:  {t: 'p' | 'quote' | 'h' | 'hr' | 'code' | 'list' | 'table', ...}
//   inline: {t: 'text' | 'code' | 'strong' | 'em' | 'del' | 'a' | 'br', ...}
//
// Work grows with the length of the text, whatever the text is: it comes from a model.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:( +)(.*)|)$/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const MAX_DEPTH = 8;

export function parseMarkdown(text) {
  return parseBlocks(text.replace(/\t/g, '    ').split(/\r\n|\r|\n/), 0);
}

// Each block of the outermost level has `source`, its lines: equal sources are equal blocks.
function parseBlocks(lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === '') {
      at++;
      continue;
    }
    const [block, next] = parseBlock(lines, at, depth);
    blocks.push({...block, source: lines.slice(at, next).join('\n')});
    at = next;
  }
  return blocks;
}

function parseBlock(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return parseCode(lines, at);
  if (RULE.test(line)) return [{t: 'hr'}, at + 1];
  const heading = HEADING.exec(line);
  if (heading) return [{t: 'h', level: heading[1].length, children: parseInline(heading[2])}, at + 1];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return parseQuote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return parseList(lines, at, depth);
  if (isTable(lines, at)) return parseTable(lines, at);
  return parseParagraph(lines, at, depth);
}

// A fence that never closes holds the rest: so it looks while it streams.
function parseCode(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  const indent = /^ */.exec(lines[at])[0].length;
  const code = [];
  let next = at + 1;
  for (; next < lines.length; next++) {
    const trimmed = lines[next].trim();
    if (trimmed.length >= fence.length && trimmed === fence[0].repeat(trimmed.length)) {
      next++;
      break;
    }
    code.push(lines[next].replace(new RegExp(`^ {0,${indent}}`), ''));
  }
  return [{t: 'code', language, text: code.join('\n')}, next];
}

function parseQuote(lines, at, depth) {
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next])) next++;
  const inner = lines.slice(at, next).map((line) => line.replace(QUOTE, ''));
  return [{t: 'quote', children: parseBlocks(inner, depth + 1)}, next];
}

const isOrdered = (marker) => marker.length > 1;

function parseList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = isOrdered(first[2]);
  const list = {t: 'list', ordered, start: ordered ? parseInt(first[2], 10) : 1, items: []};
  let next = at;
  while (next < lines.length) {
    const found = ITEM.exec(lines[next]);
    if (!found || found[1].length > first[1].length + 3 || isOrdered(found[2]) !== ordered || RULE.test(lines[next])) break;
    const end = itemEnd(lines, next, found);
    const width = contentColumn(found);
    const inner = [found[4] ?? '', ...lines.slice(next + 1, end).map((line) => dedent(line, width))];
    list.items.push(parseBlocks(inner, depth + 1));
    next = end;
  }
  return [list, next];
}

const contentColumn = ([, indent, marker, gap]) =>
  indent.length + marker.length + Math.min(gap?.length ?? 1, 4);
const dedent = (line, width) => line.slice(Math.min(width, /^ */.exec(line)[0].length));

// The first line that is no part of the item: another item, or unindented text after an empty line.
function itemEnd(lines, at, found) {
  let wasEmpty = false;
  for (let next = at + 1; next < lines.length; next++) {
    const line = lines[next];
    if (line.trim() === '') {
      wasEmpty = true;
      continue;
    }
    const indent = /^ */.exec(line)[0].length;
    // Models indent what belongs to `10.` by three as well as by four.
    const belongs = indent >= Math.min(contentColumn(found), found[1].length + 2);
    if (!belongs && (wasEmpty || startsBlock(line))) return next;
    wasEmpty = false;
  }
  return lines.length;
}

const startsBlock = (line) =>
  FENCE.test(line) || RULE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line);

function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(^|[^\\])\|$/, '$1');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, '|'));
}

function isTable(lines, at) {
  return lines[at].includes('|') && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1]) &&
         cells(lines[at]).length === cells(lines[at + 1]).length;
}

function parseTable(lines, at) {
  const align = cells(lines[at + 1]).map((cell) =>
    /^:.*:$/.test(cell) ? 'center' : cell.endsWith(':') ? 'right' : 'left');
  let next = at + 2;
  while (next < lines.length && lines[next].includes('|')) next++;
  const row = (line) => align.map((_, i) => parseInline(cells(line)[i] ?? ''));
  return [{t: 'table', align, head: row(lines[at]), rows: lines.slice(at + 2, next).map(row)}, next];
}

function parseParagraph(lines, at, depth) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim() !== '' && (depth >= MAX_DEPTH || !startsBlock(lines[next])) &&
         !isTable(lines, next)) {
    next++;
  }
  const text = lines.slice(at, next).map((line) => line.trim()).join('\n');
  return [{t: 'p', children: parseInline(text)}, next];
}

// Only what leads to another page or a letter; null for everything else, `javascript:` above all.
export function safeUrl(url) {
  return /^(https?:\/\/|mailto:)[^\s"<>]+$/i.test(url) ? url : null;
}

const PLAIN = /[^\\`*_~[!\nhH]+/y;
const ESCAPED = /\\([!-/:-@[-`{-~])/y;
const TICKS = /`+/y;
const LINK = /!?\[((?:[^[\]\\\n]|\\.){0,500})\]\(\s{0,9}(<[^<>\n]{0,2000}>|[^\s()<>]{0,2000}(?:\([^\s()]{0,500}\)[^\s()<>]{0,500}){0,9})(?:\s{1,9}"[^"\n]{0,500}")?\s{0,9}\)/y;
const BARE_URL = /https?:\/\/[^\s<>"'`*|]{1,2000}/iy;
const MARKS = /\*+|_+|~~/y;
const MAX_OPEN = 24;  // marks that wait for their partner; more are text

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

export function parseInline(text) {
  const line = new Line();
  const unclosed = new Set();  // lengths of backtick runs known to have no partner further on
  for (let at = 0; at < text.length;) {
    at += take(line, text, at, unclosed);
  }
  return line.finish();
}

// Takes one token into `line` and gives its length.
function take(line, text, at, unclosed) {
  const plain = matchAt(PLAIN, text, at);
  if (plain) return line.text(plain[0]);
  const c = text[at];
  if (c === '\n') return line.add({t: 'br'}, 1);
  if (c === '\\') {
    const found = matchAt(ESCAPED, text, at);
    return found ? line.text(found[1]) && 2 : line.text(c);
  }
  if (c === '`') return takeCode(line, text, at, unclosed);
  if (c === '[' || c === '!') return takeLink(line, text, at) || line.text(c);
  if (c === 'h' || c === 'H') return takeUrl(line, text, at) || line.text(c);
  const marks = matchAt(MARKS, text, at);
  return marks ? line.marks(marks[0], text[at - 1], text[at + marks[0].length]) : line.text(c);
}

function takeCode(line, text, at, unclosed) {
  const ticks = matchAt(TICKS, text, at)[0];
  let end = unclosed.has(ticks.length) ? -1 : text.indexOf(ticks, at + ticks.length);
  while (end >= 0 && matchAt(TICKS, text, end)[0].length !== ticks.length) {
    end = text.indexOf(ticks, end + matchAt(TICKS, text, end)[0].length);
  }
  if (end < 0) {
    unclosed.add(ticks.length);
    return line.text(ticks);
  }
  const code = text.slice(at + ticks.length, end).replace(/\n/g, ' ');
  const padded = /^ .* $/.test(code) && code.trim() !== '';
  return line.add({t: 'code', text: padded ? code.slice(1, -1) : code}, end + ticks.length - at);
}

function takeLink(line, text, at) {
  const found = matchAt(LINK, text, at);
  const href = found && safeUrl(found[2].replace(/^<(.*)>$/, '$1'));
  if (!href) return 0;
  const children = parseInline(found[1]).filter(({t}) => t !== 'a');
  return line.add({t: 'a', href, children: children.length ? children : [{t: 'text', text: href}]}, found[0].length);
}

function takeUrl(line, text, at) {
  if (at > 0 && /\w/.test(text[at - 1])) return 0;
  const found = matchAt(BARE_URL, text, at);
  if (!found) return 0;
  let url = found[0].replace(/[.,:;!?\]_~]+$/, '');
  if (url.endsWith(')') && !url.includes('(')) url = url.replace(/\)+[.,:;!?]*$/, '');
  return safeUrl(url) ? line.add({t: 'a', href: url, children: [{t: 'text', text: url}]}, url.length) : 0;
}

// Nodes so far, with emphasis marks that wait for their partner.
class Line {
  #nodes = [];
  #open = [];  // {mark, count, at}: nodes[at] is a placeholder

  add(node, length) {
    this.#nodes.push(node);
    return length;
  }

  text(text) {
    const last = this.#nodes.at(-1);
    if (last?.t === 'text') last.text += text;
    else this.#nodes.push({t: 'text', text});
    return text.length;
  }

  marks(run, before = ' ', after = ' ') {
    const mark = run[0];
    const inWord = mark === '_' && /[\p{L}\p{N}_]/u.test(before) && /[\p{L}\p{N}_]/u.test(after);
    let count = run.length;
    if (!inWord && !/\s/.test(before)) count = this.#close(mark, count);
    if (count === 0) return run.length;
    if (!inWord && !/\s/.test(after) && this.#open.length < MAX_OPEN) {
      this.#open.push({mark, count, at: this.#nodes.length});
      this.#nodes.push({t: 'open'});
    } else {
      this.text(mark.repeat(count));
    }
    return run.length;
  }

  // Pairs marks with those that are open; gives how many are left.
  #close(mark, count) {
    while (count > 0) {
      const i = this.#open.findLastIndex((open) => open.mark === mark);
      if (i < 0 || this.#open[i].at === this.#nodes.length - 1) break;
      const open = this.#open[i];
      const used = Math.min(2, count, open.count);
      this.#settle(i + 1);
      const children = merged(this.#nodes.splice(open.at + 1));
      const t = mark === '~' ? 'del' : used === 2 ? 'strong' : 'em';
      open.count -= used;
      if (open.count === 0) {
        this.#open.pop();
        this.#nodes.pop();
      }
      this.#nodes.push({t, children});
      count -= used;
    }
    return count;
  }

  // Marks from the i-th on never found a partner: they are text.
  #settle(i) {
    for (const {mark, count, at} of this.#open.splice(i)) {
      this.#nodes[at] = {t: 'text', text: mark.repeat(count)};
    }
  }

  finish() {
    this.#settle(0);
    return merged(this.#nodes);
  }
}

function merged(nodes) {
  const out = [];
  for (const node of nodes) {
    if (node.t === 'text' && out.at(-1)?.t === 'text') out.at(-1).text += node.text;
    else out.push(node);
  }
  return out;
}
