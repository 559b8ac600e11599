// Markdown on the page. Built from elements and text nodes; no markup is ever parsed.
import {parseMarkdown} from './markdown.mjs';
import {copyButton, el} from './dom.mjs';

const inline = {
  text: ({text}) => text,
  br: () => el('br'),
  code: ({text}) => el('code', {}, text),
  em: ({children}) => el('em', {}, ...inlines(children)),
  strong: ({children}) => el('strong', {}, ...inlines(children)),
  del: ({children}) => el('del', {}, ...inlines(children)),
  a: ({href, children}) =>
    el('a', {href, target: '_blank', rel: 'noopener noreferrer nofollow'}, ...inlines(children)),
};
const inlines = (nodes) => nodes.map((node) => inline[node.t](node));

const block = {
  p: ({children}) => el('p', {}, ...inlines(children)),
  h: ({level, children}) => el(`h${Math.min(6, level + 2)}`, {}, ...inlines(children)),
  hr: () => el('hr'),
  quote: ({children}) => el('blockquote', {}, ...blocks(children)),
  code: codeBlock,
  list: ({ordered, start, items}) =>
    el(ordered ? 'ol' : 'ul', ordered && start !== 1 ? {start} : {}, ...items.map(listItem)),
  table: ({align, head, rows}) => el('div', {class: 'scroll', tabindex: 0}, el('table', {},
      el('thead', {}, tableRow('th', align, head)),
      el('tbody', {}, ...rows.map((row) => tableRow('td', align, row))))),
};
const blocks = (nodes) => nodes.map((node) => block[node.t](node));

// A single paragraph needs no box of its own.
const listItem = (children) =>
  el('li', {}, ...(children[0]?.t === 'p' ? [...inlines(children[0].children), ...blocks(children.slice(1))] :
                                           blocks(children)));

const tableRow = (tag, align, row) =>
  el('tr', {}, ...row.map((cell, i) => el(tag, {class: align[i]}, ...inlines(cell))));

export function codeBlock({language, text}) {
  return el('div', {class: 'code'},
      el('div', {class: 'code-head'}, el('span', {}, language || 'text'), copyButton('Copy code', () => text)),
      el('pre', {tabindex: 0}, el('code', {}, text)));
}

const shown = new WeakMap();  // container -> sources of its blocks

// Makes `container` show `text`. Blocks that did not change stay, so a selection in them does too.
export function showProse(container, text) {
  const wanted = parseMarkdown(text);
  const old = shown.get(container) ?? [];
  let same = 0;
  while (same < wanted.length && wanted[same].source === old[same]) same++;
  while (container.children.length > same) container.lastElementChild.remove();
  container.append(...blocks(wanted.slice(same)));
  shown.set(container, wanted.map(({source}) => source));
}
