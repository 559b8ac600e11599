// Small line plots over time, drawn as SVG.
import {el, svg} from './dom.mjs';

const WIDTH = 300;
const HEIGHT = 100;

// The least of 1, 2, 5, 10, 20, 50 ... that is at least `value`.
export function niceMax(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * unit >= value * 0.999999) * unit;
}

// Pieces of line: a null value makes a gap, a lone point becomes a short dash.
export function linePath(values, xOf, yOf) {
  let path = '';
  let isPenDown = false;
  values.forEach((value, i) => {
    if (value === null) {
      isPenDown = false;
      return;
    }
    const isLone = !isPenDown && (i + 1 >= values.length || values[i + 1] === null);
    path += `${isPenDown ? 'L' : 'M'}${xOf(i).toFixed(1)} ${yOf(value).toFixed(1)}${isLone ? 'h1' : ''}`;
    isPenDown = true;
  });
  return path;
}

// {title, format(value) -> text, series: [name...], max: fixed top of the scale, or none}
export class Plot {
  constructor({title, format, series, max}) {
    Object.assign(this, {title, format, max});
    this.rows = [];
    this.lines = series.map((_, i) => svg('path', {class: `line s${i}`}));
    this.cursor = svg('path', {class: 'cursor'});
    this.now = series.map((name, i) => {
      const value = el('b', {}, '–');
      return {value, item: el('span', {class: `key s${i}`}, name, ' ', value)};
    });
    this.top = el('span', {class: 'top'});
    this.when = el('span', {class: 'when'});
    this.picture = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img'},
        svg('path', {class: 'rules', d: `M0 .5H${WIDTH}M0 50H${WIDTH}M0 99.5H${WIDTH}`}), ...this.lines, this.cursor);
    const area = el('div', {class: 'area', onpointermove: (event) => this.#point(event), onpointerleave: () => this.#unpoint()},
                    this.picture, this.top, this.when);
    this.element = el('figure', {class: 'plot'},
        el('figcaption', {}, el('span', {class: 'title'}, title), el('span', {class: 'keys'}, ...this.now.map(({item}) => item))), area);
  }

  // times: seconds, rising; rows: for each series a list of numbers or null; span: seconds across.
  draw(times, rows, span) {
    Object.assign(this, {times, rows, span});
    const top = this.max ?? niceMax(Math.max(0, ...rows.flat().filter((v) => v !== null)));
    const end = times.at(-1);
    this.xOf = (i) => WIDTH * (1 - (end - times[i]) / span);
    const yOf = (value) => HEIGHT - 1 - (HEIGHT - 3) * Math.min(1, value / top);
    rows.forEach((values, i) => this.lines[i].setAttribute('d', linePath(values, this.xOf, yOf)));
    this.top.textContent = this.format(top);
    if (!this.isPointed) this.#say(times.length - 1, '');
    const said = this.now.map(({item}) => item.textContent).join(', ');
    this.picture.setAttribute('aria-label', `${this.title}: ${said}`);
  }

  #say(i, when) {
    this.now.forEach(({value}, row) => {
      const v = this.rows[row]?.[i] ?? null;
      value.textContent = v === null ? '–' : this.format(v);
    });
    this.when.textContent = when;
  }

  #point(event) {
    if (!this.times?.length) return;
    const box = this.picture.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * WIDTH;
    let i = 0;
    while (i + 1 < this.times.length && Math.abs(this.xOf(i + 1) - x) <= Math.abs(this.xOf(i) - x)) i++;
    this.isPointed = true;
    this.cursor.setAttribute('d', `M${this.xOf(i)} 0V${HEIGHT}`);
    this.#say(i, `${Math.round(this.times.at(-1) - this.times[i])} s ago`);
  }

  #unpoint() {
    this.isPointed = false;
    this.cursor.setAttribute('d', '');
    if (this.times?.length) this.#say(this.times.length - 1, '');
  }
}
