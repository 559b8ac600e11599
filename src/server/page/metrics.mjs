// The Prometheus text format, and what the status view computes from two readings of it. Pure functions.

const LINE = /^([a-zA-Z_:][\w:]*)(\{.*\})?[ \t]+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"[ \t]*,?[ \t]*/gy;
const ESCAPES = {n: '\n', '"': '"', '\\': '\\'};

function number(text) {
  if (/^[+-]?inf(inity)?$/i.test(text)) return text[0] === '-' ? -Infinity : Infinity;
  return Number(text);  // NaN stays NaN
}

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.slice(1, -1).matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (whole, c) => ESCAPES[c] ?? whole);
  }
  return labels;
}

// Name without its prefix (`nibble:x` is `x`) -> [{labels, value}].
export function parseMetrics(text) {
  const families = new Map();
  for (const line of text.split('\n')) {
    const found = LINE.exec(line);
    if (!found) continue;  // comment or empty
    const name = found[1].slice(found[1].indexOf(':') + 1);
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({labels: labelsOf(found[2] ?? '{}'), value: number(found[3])});
  }
  return families;
}

// Over all label sets; null when there is none.
export function total(families, name) {
  const samples = families.get(name);
  return samples ? samples.reduce((sum, {value}) => sum + value, 0) : null;
}

// Value of a label -> sum.
export function totalBy(families, name, label) {
  const sums = {};
  for (const {labels, value} of families.get(name) ?? []) {
    sums[labels[label] ?? ''] = (sums[labels[label] ?? ''] ?? 0) + value;
  }
  return sums;
}

// {edges, counts}: counts[i] observations were at most edges[i]. Null when there is none.
export function histogram(families, name) {
  const sums = Object.entries(totalBy(families, `${name}_bucket`, 'le'))
      .map(([edge, count]) => [number(edge), count])
      .sort(([a], [b]) => a - b);
  return sums.length === 0 ? null : {edges: sums.map(([e]) => e), counts: sums.map(([, c]) => c)};
}

// A counter that fell began again at zero.
export function increase(before, after) {
  if (before === null || after === null) return null;
  return after >= before ? after - before : after;
}

// What was observed between two readings of a histogram.
export function histogramIncrease(before, after) {
  if (!before || !after || String(before.edges) !== String(after.edges)) return after;
  const last = after.counts.length - 1;
  if (after.counts[last] < before.counts[last]) return after;
  return {edges: after.edges, counts: after.counts.map((count, i) => count - before.counts[i])};
}

// The value below which a part q of the observations lies, linear inside a bucket; null without
// observations. Beyond the last finite edge nothing is known: that edge is the answer.
export function quantile(buckets, q) {
  const all = buckets?.counts.at(-1) ?? 0;
  if (!(all > 0)) return null;
  const rank = q * all;
  const i = buckets.counts.findIndex((count) => count >= rank && count > 0);
  const below = i > 0 ? buckets.edges[i - 1] : 0;
  if (buckets.edges[i] === Infinity) return below;
  const before = i > 0 ? buckets.counts[i - 1] : 0;
  return below + (buckets.edges[i] - below) * ((rank - before) / (buckets.counts[i] - before));
}
