// The page's pure functions. `run()` gives a list of {name, fault}, fault empty when it holds. Runs in the
// browser, beside the page's files, and in node:  node tests/e2e/page_units.mjs
const isNode = typeof process === 'object';
const base = isNode ? '../../src/server/page/' : './';
const {SseParser, readEvents} = await import(`${base}sse.mjs`);
const {parseMarkdown, parseInline, safeUrl} = await import(`${base}markdown.mjs`);
const metrics = await import(`${base}metrics.mjs`);
const history = await import(`${base}history.mjs`);
const conversation = await import(`${base}conversation.mjs`);
const {errorText} = await import(`${base}api.mjs`);
const {linePath, niceMax} = await import(`${base}plot.mjs`);

const tests = [];
const test = (name, body) => tests.push({name, body});

function same(found, wanted) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`want ${b}, found ${a}`);
}

// --- Server-sent events

const STREAM = ': hello\r\ndata: {"a":1}\r\n\r\nevent: ping\rdata:x\rdata:  y\r\rdata: ä€😀\n\nid: 7\nretry: 5\ndata\n\n\n\ndata:p\r\ndata:q\r\n\r\ndata: cut';
const EVENTS = [{event: 'message', data: '{"a":1}'}, {event: 'ping', data: 'x\n y'}, {event: 'message', data: 'ä€😀'},
                {event: 'message', data: ''}, {event: 'message', data: 'p\nq'}];

test('SSE: the same events wherever the text is cut once', () => {
  for (let i = 0; i <= STREAM.length; i++) {
    const parser = new SseParser();
    same([...parser.push(STREAM.slice(0, i)), ...parser.push(STREAM.slice(i))], EVENTS);
  }
});

test('SSE: the same events in pieces of every size, empty pieces between them', () => {
  for (let size = 1; size < 12; size++) {
    const parser = new SseParser();
    const events = [];
    for (let i = 0; i < STREAM.length; i += size) {
      events.push(...parser.push(STREAM.slice(i, i + size)), ...parser.push(''));
    }
    same(events, EVENTS);
  }
});

test('SSE: characters survive a cut inside their bytes', async () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (let size = 1; size < 6; size++) {
    const body = new ReadableStream({start(controller) {
      for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
      controller.close();
    }});
    const events = [];
    for await (const event of readEvents(body)) events.push(event);
    same(events, EVENTS);
  }
});

test('SSE: leaving the loop closes the stream', async () => {
  let isCancelled = false;
  const body = new ReadableStream({
    start(controller) { controller.enqueue(new TextEncoder().encode('data: 1\n\ndata: 2\n\n')); },
    cancel() { isCancelled = true; },
  });
  for await (const event of readEvents(body)) {
    same(event.data, '1');
    break;
  }
  same(isCancelled, true);
});

// --- Markdown, printed as one line of HTML to compare

const escape = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');
const inlineHtml = (nodes) => nodes.map((n) => ({
  text: () => escape(n.text), br: () => '<br>', code: () => `<code>${escape(n.text)}</code>`,
  a: () => `<a ${n.href}>${inlineHtml(n.children)}</a>`,
}[n.t] ?? (() => `<${n.t}>${inlineHtml(n.children)}</${n.t}>`))()).join('');
const row = (cells) => cells.map(inlineHtml).join('|');
const blockHtml = (blocks) => blocks.map((b) => ({
  p: () => `<p>${inlineHtml(b.children)}</p>`, h: () => `<h${b.level}>${inlineHtml(b.children)}</h${b.level}>`,
  hr: () => '<hr>', quote: () => `<quote>${blockHtml(b.children)}</quote>`,
  code: () => `<pre ${b.language}>${escape(b.text)}</pre>`,
  list: () => `<${b.ordered ? `ol ${b.start}` : 'ul'}>${b.items.map((i) => `<li>${blockHtml(i)}</li>`).join('')}</>`,
  table: () => `<table ${b.align}>${[b.head, ...b.rows].map(row).join('/')}</table>`,
}[b.t])()).join('');

const INLINE = [
  ['plain text, a < b & c', 'plain text, a &lt; b &amp; c'],
  ['<img src=x onerror=alert(1)> <script>', '&lt;img src=x onerror=alert(1)> &lt;script>'],
  ['*a* _b_ **c** __d__ ~~e~~', '<em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <del>e</del>'],
  ['***a*** **b *c* d**', '<em><strong>a</strong></em> <strong>b <em>c</em> d</strong>'],
  ['2 * 3 * 4 and a_b_c and **open', '2 * 3 * 4 and a_b_c and **open'],
  ['*a _b* c_', '<em>a _b</em> c_'],
  ['`a*b*` and ``x ` y`` and ` `` ', '<code>a*b*</code> and <code>x ` y</code> and ` `` '],
  ['\\*a\\* \\q `\\*`', '*a* \\q <code>\\*</code>'],
  ['[a *b*](https://x.org/p_(q)) [c](<https://y.org> "t")', '<a https://x.org/p_(q)>a <em>b</em></a> <a https://y.org>c</a>'],
  ['[x](javascript:alert(1)) [y](data:text/html,z) [z](/here)', '[x](javascript:alert(1)) [y](data:text/html,z) [z](/here)'],
  ['![picture](https://x.org/p.png)', '<a https://x.org/p.png>picture</a>'],
  ['see https://x.org/a_b_c?d=1. (http://y.org)', 'see <a https://x.org/a_b_c?d=1>https://x.org/a_b_c?d=1</a>. (<a http://y.org>http://y.org</a>)'],
  ['one\ntwo', 'one<br>two'],
  ['the the Hat', 'the the Hat'],
];

for (const [text, wanted] of INLINE) test(`Markdown inline: ${JSON.stringify(text)}`, () => same(inlineHtml(parseInline(text)), wanted));

const BLOCKS = [
  ['# A\n## B ##\ntext\nmore\n\nnext', '<h1>A</h1><h2>B</h2><p>text<br>more</p><p>next</p>'],
  ['```js\na <b>\n\n  c\n```\nafter', '<pre js>a &lt;b>\n\n  c</pre><p>after</p>'],
  ['text\n~~~\nnever closed\n```', '<p>text</p><pre >never closed\n```</pre>'],
  ['````\n```\n````', '<pre >```</pre>'],
  ['- a\n- b\n  - c\n  - d\n- e', '<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li><li><p>d</p></li></></li><li><p>e</p></li></>'],
  ['3. a\n4. b\n\n   more\n\n   ```\n   x\n   ```\n\nend', '<ol 3><li><p>a</p></li><li><p>b</p><p>more</p><pre >x</pre></li></><p>end</p>'],
  ['1. a\n   - b\n2. c\n\ntext', '<ol 1><li><p>a</p><ul><li><p>b</p></li></></li><li><p>c</p></li></><p>text</p>'],
  ['- a\n1. b', '<ul><li><p>a</p></li></><ol 1><li><p>b</p></li></>'],
  ['> a\n> - b\n\nc', '<quote><p>a</p><ul><li><p>b</p></li></></quote><p>c</p>'],
  ['a\n\n---\n***\n- - -', '<p>a</p><hr><hr><hr>'],
  ['| a | b |\n|:-|-:|\n| 1 | `x\\|y` |\n| 2 |\nend', '<table left,right>a|b/1|<code>x|y</code>/2|</table><p>end</p>'],
  ['a | b\nno table', '<p>a | b<br>no table</p>'],
  ['', ''],
  ['-', '<ul><li></li></>'],
];

for (const [text, wanted] of BLOCKS) test(`Markdown blocks: ${JSON.stringify(text)}`, () => same(blockHtml(parseMarkdown(text)), wanted));

test('Markdown: every prefix of a text can be shown, and blocks before the last stay the same', () => {
  const text = BLOCKS.map(([source]) => source).join('\n\n');
  const all = parseMarkdown(text).map(({source}) => source);
  for (let i = 0; i < text.length; i++) {
    // The last two: a line that is cut may still become part of the block before it.
    const sources = parseMarkdown(text.slice(0, i)).map(({source}) => source).slice(0, -2);
    same(sources, all.slice(0, sources.length));
  }
});

test('Markdown: hostile texts end, and keep their letters', () => {
  const n = 40000;
  const parts = ['*', '_', '`', '[', '![', '**a', '_a *b ', '[a](', '> ', '- ', '|', '`` ` ', '~~', '\\', 'https://', '*a**b***c', '(', '  - x\n', '|-|\n', '# '];
  for (const part of parts) {
    const text = part.repeat(n / part.length);
    same(typeof blockHtml(parseMarkdown(text)), 'string');
    same(typeof blockHtml(parseMarkdown(`x ${text} y`)), 'string');
  }
});

test('Markdown: links lead to the web or to mail only', () => {
  for (const bad of ['javascript:alert(1)', ' javascript:x', 'JAVASCRIPT:x', 'data:text/html,x', '//x.org', '/x', 'file:///etc', 'https:x', 'vbscript:x', 'https://a b']) same(safeUrl(bad), null);
  for (const good of ['https://x.org', 'HTTP://x.org/a?b#c', 'mailto:a@b.c']) same(safeUrl(good), good);
});

// --- Metrics

const TEXT = `# HELP nibble:x Some help {with="braces"} 7
# TYPE nibble:x counter
nibble:x{model_name="a \\"b\\" \\\\ \\n}",engine="0"} 5
nibble:x{model_name="c",engine="1"} 2.5e1 1700000000
plain 3
nibble:inf +Inf
nibble:h_bucket{le="0.1",model_name="m"} 2
nibble:h_bucket{le="+Inf",model_name="m"} 8
nibble:h_bucket{le="1.0",model_name="m"} 6
nibble:h_sum{model_name="m"} 9
nibble:h_count{model_name="m"} 8
`;

test('Metrics: names, labels with escapes, values', () => {
  const families = metrics.parseMetrics(TEXT);
  same(families.get('x').map(({labels}) => labels), [{model_name: 'a "b" \\ \n}', engine: '0'}, {model_name: 'c', engine: '1'}]);
  same([metrics.total(families, 'x'), metrics.total(families, 'plain'), metrics.total(families, 'none')], [30, 3, null]);
  same(metrics.total(families, 'inf') === Infinity, true);
  same(metrics.totalBy(families, 'x', 'engine'), {0: 5, 1: 25});
});

test('Metrics: a histogram is sorted by its edges', () => {
  const {edges, counts} = metrics.histogram(metrics.parseMetrics(TEXT), 'h');
  same([edges.slice(0, 2), edges[2] === Infinity, counts], [[0.1, 1], true, [2, 6, 8]]);
  same(metrics.histogram(metrics.parseMetrics(TEXT), 'x'), null);
});

test('Metrics: increases, also over a restart', () => {
  same([metrics.increase(5, 9), metrics.increase(9, 2), metrics.increase(null, 2), metrics.increase(2, null)], [4, 2, null, null]);
  const h = (...counts) => ({edges: [1, 2, 4], counts});
  same(metrics.histogramIncrease(h(1, 2, 3), h(2, 4, 6)), h(1, 2, 3));
  same(metrics.histogramIncrease(h(5, 6, 9), h(1, 1, 2)), h(1, 1, 2));
  same(metrics.histogramIncrease(null, h(1, 1, 2)), h(1, 1, 2));
  same(metrics.histogramIncrease(h(1, 1, 1), null), null);
});

test('Metrics: quantiles are linear inside a bucket', () => {
  const buckets = {edges: [1, 2, 4, Infinity], counts: [0, 4, 8, 10]};
  same([0.2, 0.4, 0.6, 0.8].map((q) => metrics.quantile(buckets, q)), [1.5, 2, 3, 4]);
  same([metrics.quantile(buckets, 0.99), metrics.quantile({edges: [1, 2], counts: [0, 0]}, 0.5), metrics.quantile(null, 0.5)], [4, null, null]);
});

test('Metrics: quantiles bracket the true ones to one bucket', () => {
  // Independent: sort the observations themselves. A quantile can miss by no more than its bucket is wide.
  const edges = [0.1, 0.2, 0.5, 1, 2, 5, 10, Infinity];
  const values = Array.from({length: 500}, (_, i) => 9.9 * ((i * 7919) % 500) / 500).sort((a, b) => a - b);
  const counts = edges.map((edge) => values.filter((v) => v <= edge).length);
  for (const q of [0.01, 0.1, 0.5, 0.9, 0.99]) {
    const truth = values[Math.ceil(q * values.length) - 1];
    const found = metrics.quantile({edges, counts}, q);
    const i = edges.findIndex((edge) => truth <= edge);
    if (found < (edges[i - 1] ?? 0) || found > edges[i]) throw new Error(`q ${q}: want near ${truth}, found ${found}`);
  }
});

test('History: rates, hit rates and percentiles from differences', () => {
  const at = (time, tokens, asked, hits, counts) => ({time, tokens, cacheQueries: asked, cacheHits: hits, h: {edges: [1, 2], counts}});
  const readings = [at(0, 100, 0, 0, [0, 0]), at(1, 130, 10, 5, [2, 2]), at(2, 160, 10, 5, [2, 2]), at(3, 190, 10, 5, [2, 2]), at(4, 280, 40, 35, [2, 6])];
  same(history.rates(readings, 'tokens'), [null, 30, 30, 30, 50]);
  same(history.rates([at(0, null), at(1, null)], 'tokens'), [null, null]);
  same(history.hitRates(readings, 2), [null, 0.5, 0.5, null, 1]);
  same(history.percentiles(readings, 'h', 0.5, 2), [null, 0.5, 0.5, null, 1.5]);
  const long = [];
  for (let t = 0; t < 2000; t++) history.addReading(long, at(t, t, 0, 0, [0, 0]));
  same([long.length, long[0].time], [2 * history.SPAN_S + 1, 1999 - 2 * history.SPAN_S]);
});

test('History: a reading of the server\'s names', () => {
  const found = history.reading('nibble:num_requests_running{model_name="m"} 3\nnibble:request_success_total{finished_reason="stop",model_name="m"} 4\nnibble:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 1\n', 7);
  same([found.time, found.running, found.waiting, found.ended, found.firstToken.counts], [7, 3, null, {stop: 4}, [1]]);
});

test('Plot: scales end at 1, 2 or 5 times a power of ten', () => {
  same([0, 1, 1.1, 2.5, 7, 10, 11, 0.03, 1000, 1001].map(niceMax), [1, 1, 2, 5, 10, 10, 20, 0.05, 1000, 2000]);
  const path = linePath([1, 2, null, 3, null], (i) => i, (v) => v);
  same(path, 'M0.0 1.0L1.0 2.0M3.0 3.0h1');
});

// --- Conversation

test('Conversation: a request holds what was set and nothing else', () => {
  const user = {role: 'user', content: 'hi'};
  const same_ = (settings, more) => same(conversation.requestBody([user], settings, 'm'), {
    model: 'm', messages: [...(settings.system ? [{role: 'system', content: settings.system}] : []), user], stream: true,
    stream_options: {include_usage: true}, receipt: true, ...more});
  same_({}, {});
  same_({system: 'be brief', temperature: '0', top_p: '0.9', top_k: '40', min_p: '0.05', max_tokens: '7', seed: '3', reasoning_effort: 'low'},
        {temperature: 0, top_p: 0.9, top_k: 40, min_p: 0.05, max_tokens: 7, seed: 3, reasoning_effort: 'low'});
  same_({tools: '[{"name":"f"}]'}, {tools: [{type: 'function', function: {name: 'f'}}]});
  for (const bad of ['{', '{}', '[3]', '[{"name":1}]', '[null]']) {
    let message = '';
    try { conversation.parseTools(bad); } catch (error) { message = error.message; }
    same(message.startsWith('Tools: '), true);
  }
});

test('Conversation: answers without text stay out, tool calls go back with their reasoning', () => {
  const failed = {role: 'assistant', content: '', calls: [], error: {message: 'x'}};
  const cut = {role: 'assistant', content: 'half', reasoning: 'r', calls: [], error: {message: 'x'}};
  const called = {role: 'assistant', content: '', reasoning: 'why', calls: [{id: 'c', name: 'f', arguments: '{}'}]};
  const result = {role: 'tool', content: '7', callId: 'c', name: 'f'};
  same(conversation.requestBody([failed, cut, called, result], {}, 'm').messages, [
    {role: 'assistant', content: 'half'},
    {role: 'assistant', content: '', tool_calls: [{id: 'c', type: 'function', function: {name: 'f', arguments: '{}'}}], reasoning_content: 'why'},
    {role: 'tool', content: '7', tool_call_id: 'c'}]);
});

test('Conversation: chunks add up', () => {
  const answer = conversation.newAnswer();
  const chunks = [{choices: [{delta: {role: 'assistant', content: ''}}]},
                  {choices: [{delta: {reasoning_content: 'a', reasoning: 'a'}}]}, {choices: [{delta: {reasoning: 'b'}}]},
                  {choices: [{delta: {content: 'c'}}]}, {choices: [{delta: {content: 'd'}}]},
                  {choices: [{delta: {tool_calls: [{index: 1, id: 'x', function: {name: 'f', arguments: ''}}]}}]},
                  {choices: [{delta: {tool_calls: [{index: 1, function: {arguments: '{"q"'}}, {index: 0, id: 'w', function: {name: 'g'}}]}}]},
                  {choices: [{delta: {tool_calls: [{index: 1, function: {arguments: ':1}'}}]}, finish_reason: 'tool_calls'}]},
                  {choices: [], usage: {completion_tokens: 21}, receipt: {request_id: 'r', choices: [{decode_ms: 500, seed: 9}]}}];
  chunks.forEach((chunk, i) => conversation.addChunk(answer, chunk, 100 * i));
  same([answer.reasoning, answer.content, answer.finish], ['ab', 'cd', 'tool_calls']);
  same(answer.calls, [{id: 'w', name: 'g', arguments: ''}, {id: 'x', name: 'f', arguments: '{"q":1}'}]);
  const {firstMs, lastMs, thoughtMs, reasoningPieces, receipt} = answer.facts;
  same([firstMs, lastMs, thoughtMs, reasoningPieces, receipt.seed, receipt.request_id], [100, 700, 200, 2, 9, 'r']);
  same(conversation.speedOf(answer.facts), 40);  // 20 tokens after the first in the server's 500 ms
  same(conversation.speedOf({firstMs: 0, lastMs: 500, pieces: 11}), 20);
  same(conversation.speedOf({pieces: 0}), null);
});

test('Errors: the message of every usual shape', () => {
  same(['{"error":{"message":"m","code":4}}', '{"error":"m"}', '{"message":"m"}', '{"detail":"m"}', ' m ', '', '{"a":1}'].map((text) => errorText(text, 'none')),
       ['m', 'm', 'm', 'm', 'm', 'none', '{"a":1}']);
});

export async function run() {
  const results = [];
  for (const {name, body} of tests) {
    let fault = '';
    try {
      await body();
    } catch (error) {
      fault = String(error.stack ?? error);
    }
    results.push({name, fault});
  }
  return results;
}

if (isNode) {
  const results = await run();
  const failed = results.filter(({fault}) => fault);
  for (const {name, fault} of failed) console.log(`${name}\n  ${fault}`);
  console.log(`${results.length - failed.length} of ${results.length} hold`);
  process.exit(failed.length > 0 ? 1 : 0);
}
