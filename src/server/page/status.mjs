// The status view: asks for /metrics once a second while it is shown, and plots what it finds.
import {request} from './api.mjs';
import {byId, el} from './dom.mjs';
import {SPAN_S, addReading, hitRates, percentiles, rates, reading} from './history.mjs';
import {Plot} from './plot.mjs';

const POLL_MS = 1000;
const QUANTILES = [['p50', 0.5], ['p90', 0.9], ['p99', 0.99]];

const whole = (value) => new Intl.NumberFormat('en', {notation: value >= 1e5 ? 'compact' : 'standard', maximumFractionDigits: value < 10 ? 1 : 0}).format(value);
const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
const duration = (value) => value < 1 ? `${(1000 * value).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`;
const column = (name) => (history) => history.map((r) => r[name]);
const latency = (title, name) => ({
  title, format: duration, series: QUANTILES.map(([label]) => label),
  curves: (history, seconds) => QUANTILES.map(([, q]) => percentiles(history, name, q, seconds)),
});

const PLOTS = [
  {title: 'Generation', format: (v) => `${whole(v)} tok/s`, series: [''], curves: (h) => [rates(h, 'generationTokens')]},
  {title: 'Prompt', format: (v) => `${whole(v)} tok/s`, series: [''], curves: (h) => [rates(h, 'promptTokens')]},
  {title: 'Requests', format: whole, series: ['running', 'waiting'], curves: (h) => [column('running')(h), column('waiting')(h)]},
  {title: 'Cache in use', format: percent, series: [''], max: 1, curves: (h) => [column('cacheUse')(h)]},
  latency('Time to first token', 'firstToken'),
  latency('Between tokens', 'interToken'),
  latency('Whole request', 'endToEnd'),
  {title: 'Prefix cache hits', format: percent, series: [''], max: 1, curves: (h, seconds) => [hitRates(h, seconds)]},
];

const history = [];
let plots = [];
let showing = 0;  // how often the view was shown or hidden: polls of an earlier showing end

export function startStatus() {
  plots = PLOTS.map((options) => ({...options, plot: new Plot(options)}));
  byId('plots').append(...plots.map(({plot}) => plot.element));
  byId('window').addEventListener('change', draw);
}

export function showStatus(isShown) {
  showing++;
  if (isShown) poll(showing);
}

async function poll(mine) {
  if (mine !== showing) return;
  try {
    const text = await (await request('metrics')).text();
    addReading(history, reading(text, performance.now() / 1000));
    byId('status-note').textContent = '';
    draw();
  } catch (error) {
    byId('status-note').textContent = `${error.message} Trying again…`;
  }
  setTimeout(poll, POLL_MS, mine);
}

function draw() {
  if (history.length === 0) return;
  const end = history.at(-1).time;
  const first = history.findIndex(({time}) => end - time <= SPAN_S);
  const times = history.slice(first).map(({time}) => time);
  const seconds = Number(byId('window').value);
  for (const {plot, curves} of plots) {
    plot.draw(times, curves(history, seconds).map((curve) => curve.slice(first)), SPAN_S);
  }
  drawTotals(history.at(-1));
}

function drawTotals({promptTokens, generationTokens, preemptions, ended}) {
  const finished = Object.values(ended).reduce((sum, n) => sum + n, 0);
  const reasons = Object.entries(ended).filter(([, n]) => n > 0).map(([reason, n]) => `${whole(n)} ${reason}`).join(', ');
  const rows = [['Requests finished', finished, reasons], ['Prompt tokens', promptTokens], ['Generated tokens', generationTokens],
                ['Preemptions', preemptions]];
  byId('totals').replaceChildren(...rows.map(([name, value, more = '']) => el('div', {},
      el('dt', {}, name), el('dd', {}, value === null ? '–' : whole(value), el('small', {}, more)))));
}
