// Charts over time, drawn by uPlot, and heat maps, drawn here.

/* global uPlot */
const AXIS_PX = 52;
const TOP_PX = 14;
const RIGHT_PX = 22; // half of a time below the axis

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function font(size) {
  return `${size}px ${getComputedStyle(document.body).fontFamily}`;
}

// Vertical lines where something happened, with its words where there is room for them.
function drawMarks(context, marks, x, top, bottom, right, words) {
  const scale = devicePixelRatio;
  context.save();
  context.strokeStyle = context.fillStyle = colour("mark");
  context.lineWidth = scale;
  context.setLineDash([3 * scale, 3 * scale]);
  context.font = font(10 * scale);
  context.textBaseline = "bottom";
  context.textAlign = "left";
  let free = -Infinity;
  for (const mark of marks) {
    const at = Math.round(x(mark.at)) + 0.5;
    if (!(at >= AXIS_PX * scale - 1) || at > right + 1) continue;
    context.beginPath();
    context.moveTo(at, top);
    context.lineTo(at, bottom);
    context.stroke();
    const wide = words ? context.measureText(mark.words).width : Infinity;
    const left = Math.min(at, right - wide);
    if (left > free) {
      context.fillText(mark.words, left, top - 2 * scale);
      free = left + wide + 8 * scale;
    }
  }
  context.restore();
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// What every chart is: a heading, what its colours mean, a picture, and the same in a sentence.
class Figure {
  constructor(title, keys) {
    this.root = element("figure", "chart");
    this.root.setAttribute("aria-label", title);
    const head = element("div", "head");
    head.append(element("h3", "", title));
    this.key = element("ul", "key");
    head.append(this.key);
    this.plot = element("div", "plot");
    this.plot.setAttribute("aria-hidden", "true");
    this.caption = element("figcaption", "quiet");
    this.root.append(head, this.plot, this.caption);
    this.values = new Map();
    this.setKeys(keys);
  }

  setKeys(keys) {
    this.key.replaceChildren();
    for (const key of keys) {
      const item = element("li"), swatch = element("i", `swatch ${key.dash ? "line" : ""}`);
      swatch.style.setProperty("--of", `var(--${key.colour})`);
      if (key.dash) swatch.style.borderTopStyle = key.dash.length === 2 && key.dash[0] < 3 ? "dotted" : key.dash[0] ? "dashed" : "solid";
      const value = element("b");
      item.append(swatch, `${key.name} `, value);
      this.key.append(item);
      this.values.set(key.name, { item, value });
    }
  }

  say(text) {
    if (this.caption.textContent !== text) this.caption.textContent = text;
  }
}

export class Chart extends Figure {
  // series: {name, colour, dash?}; stacked ones are given from below upwards.
  constructor(title, series, { stacked = false, log = false, words = false, binary = false, write }) {
    super(title, series);
    this.series = series;
    this.stacked = stacked;
    this.write = write;
    this.words = words;
    this.log = log;
    this.binary = binary;
    this.marks = [];
    this.given = [[], ...series.map(() => [])];
    this.chart = null;
    this.seen = new ResizeObserver(() => this.resize());
    this.seen.observe(this.plot);
  }

  options() {
    const grid = { stroke: colour("grid"), width: 1 };
    const decades = (_u, at) => at.map((one) => (Math.abs(Math.log10(one) - Math.round(Math.log10(one))) < 1e-6 ? one : null));
    const incrs = Array.from({ length: 40 }, (_, power) => 2 ** power);
    const axis = { stroke: colour("quiet"), font: font(11), grid, ticks: { show: false } };
    const lines = this.series.map((one) => ({
      stroke: colour(one.colour),
      width: this.stacked ? 1 : 1.5,
      dash: one.dash && one.dash[0] ? one.dash : undefined,
      fill: this.stacked ? colour(`${one.colour}-fill`) : undefined,
      points: { show: false },
      spanGaps: false,
    }));
    // The highest of a stack is drawn first, the lower ones over it.
    const drawn = this.stacked ? lines.reverse() : lines;
    return {
      width: Math.max(this.plot.clientWidth, 120),
      height: 148,
      padding: [TOP_PX, RIGHT_PX, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 5 }, y: false },
      select: { show: false },
      scales: {
        x: { time: true, range: () => this.range },
        y: this.log
          ? { distr: 3, range: (_u, low, high) => [10 ** Math.floor(Math.log10(low || 0.1)), 10 ** Math.ceil(Math.log10(high || 1))] }
          : { range: (_u, _low, high) => [0, high > 0 ? high * 1.08 : 1] },
      },
      axes: [
        { ...axis, size: 26, gap: 7, space: 60, values: (_u, at) => at.map((one) => new Date(one * 1000).toLocaleTimeString("en-GB", at.length > 1 && at[1] - at[0] < 60 ? {} : { hour: "2-digit", minute: "2-digit" })) },
        { ...axis, size: AXIS_PX, gap: 4, space: 28, ...(this.log ? { filter: decades, grid: { ...grid, filter: decades } } : {}), ...(this.binary ? { incrs } : {}), values: (_u, at) => at.map((one) => (one === null ? "" : this.write(one))) },
      ],
      series: [{}, ...drawn],
      hooks: {
        draw: [(u) => drawMarks(u.ctx, this.marks, (at) => u.valToPos(at / 1000, "x", true), u.bbox.top, u.bbox.top + u.bbox.height, u.bbox.left + u.bbox.width, this.words)],
        setCursor: [(u) => this.showValues(u.cursor.idx)],
      },
    };
  }

  show(given, marks, from, to) {
    this.given = given;
    this.marks = marks;
    this.range = [from / 1000, to / 1000];
    if (!this.plot.clientWidth) return;
    const data = this.stacked ? stack(given) : given;
    if (this.chart === null) {
      this.chart = new uPlot(this.options(), data, this.plot);
    } else {
      this.chart.setData(data);
    }
    this.showValues(this.chart.cursor.idx);
  }

  showValues(index) {
    const at = index ?? this.given[0].length - 1;
    this.series.forEach((one, number) => {
      const value = this.given[number + 1][at], shown = this.values.get(one.name);
      shown.value.textContent = this.write(value ?? null);
      shown.item.classList.toggle("none", this.series.length > 4 && !this.given[number + 1].some(Boolean));
    });
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.chart !== null && width && Math.abs(width - this.chart.width) > 1) this.chart.setSize({ width, height: 148 });
  }

  // Other colours: those of uPlot are fixed when it is made.
  repaint() {
    this.chart?.destroy();
    this.chart = null;
  }
}

function stack(given) {
  const [at, ...columns] = given, sums = [];
  let below = at.map(() => 0);
  for (const column of columns) {
    below = column.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
    sums.push(below);
  }
  return [at, ...sums.reverse()];
}

function parts(name) {
  const digits = colour(name).match(/[0-9a-f]{2}/gi);
  return digits.map((two) => parseInt(two, 16));
}

export class HeatMap extends Figure {
  constructor(title) {
    super(title, []);
    this.canvas = element("canvas");
    this.plot.append(this.canvas);
    this.read = element("span", "quiet reading");
    this.key.replaceWith(this.read);
    this.heading = this.root.querySelector("h3");
    this.last = null;
    this.canvas.addEventListener("pointermove", (event) => this.tell(event));
    this.canvas.addEventListener("pointerleave", () => { this.read.textContent = ""; });
    new ResizeObserver(() => this.paint()).observe(this.plot);
  }

  // rows: what each is called, from below, or where its upper edge is; counts: of a second, by row.
  show(title, rows, edges, words, counts, points, marks, from, to) {
    if (this.heading.textContent !== title) {
      this.heading.textContent = title;
      this.root.setAttribute("aria-label", title);
    }
    this.last = { rows, edges, words, counts, points, marks, from, to };
    this.paint();
  }

  repaint() {
    this.paint();
  }

  paint() {
    const width = this.plot.clientWidth, height = 148;
    if (!this.last || !width) return;
    const { rows, counts, points, marks, from, to } = this.last, scale = devicePixelRatio;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    const left = AXIS_PX, right = width - RIGHT_PX, top = TOP_PX, bottom = height - 26;
    const seconds = Math.max(1, Math.ceil(((to - from) / 1000) / Math.max((right - left) / 4, 1)));
    const binMs = seconds * 1000, first = Math.floor(from / binMs);
    const bins = new Map();
    let most = 0, low = Infinity, high = -Infinity;
    for (const second of points) {
      if (second.gap) continue;
      const bin = Math.floor(second.at / binMs), own = bins.get(bin) || new Map();
      for (const [row, count] of counts(second)) {
        own.set(row, (own.get(row) || 0) + count);
        most = Math.max(most, own.get(row));
        low = Math.min(low, row);
        high = Math.max(high, row);
      }
      bins.set(bin, own);
    }
    if (high < low) [low, high] = [0, Math.min(rows.length - 1, 7)];
    while (high - low < 5 && (low > 0 || high < rows.length - 1)) {
      if (high < rows.length - 1) high += 1;
      if (high - low < 5 && low > 0) low -= 1;
    }
    const cell = (bottom - top) / (high - low + 1), perMs = (right - left) / (to - from);
    const x = (ms) => left + (ms - from) * perMs;
    context.scale(scale, scale);
    context.fillStyle = colour("heat-none");
    context.fillRect(left, top, right - left, bottom - top);
    const cold = parts("heat-0"), warm = parts("heat-1");
    for (const [bin, own] of bins) {
      const begin = Math.max(x(bin * binMs), left), end = Math.min(x((bin + 1) * binMs), right);
      if (end <= begin) continue;
      for (const [row, count] of own) {
        const heat = Math.sqrt(count / most);
        context.fillStyle = `rgb(${cold.map((part, index) => Math.round(part + (warm[index] - part) * heat))})`;
        context.fillRect(begin, bottom - (row - low + 1) * cell, end - begin + 0.4, cell - 0.6);
      }
    }
    this.axes(context, { rows, low, high, cell, left, right, bottom, from, to, x });
    context.setTransform(1, 0, 0, 1, 0, 0);
    drawMarks(context, marks, (at) => x(at) * scale, top * scale, bottom * scale, right * scale, false);
    this.drawn = { low, high, cell, left, right, bottom, from, perMs, binMs, bins, first };
  }

  axes(context, { rows, low, high, cell, left, right, bottom, from, to, x }) {
    context.fillStyle = colour("quiet");
    context.font = font(11);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(15 / cell));
    for (let row = low; row <= high; row += every) {
      context.fillText(rows[row], left - 6, bottom - (row - low + (this.last.edges ? 1 : 0.5)) * cell);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const steps = [15, 30, 60, 120, 300].map((step) => step * 1000);
    const step = steps.find((one) => (right - left) / ((to - from) / one) > 70) || 300_000;
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const options = step < 60_000 ? {} : { hour: "2-digit", minute: "2-digit" };
      const place = Math.min(Math.max(x(at), left + 16), right - 16);
      context.fillText(new Date(at).toLocaleTimeString("en-GB", options), place, bottom + 9);
    }
  }

  tell(event) {
    if (!this.drawn) return;
    const { low, high, cell, left, bottom, from, perMs, binMs, bins } = this.drawn;
    const row = low + Math.floor((bottom - event.offsetY) / cell);
    const bin = Math.floor((from + (event.offsetX - left) / perMs) / binMs);
    if (row < low || row > high || event.offsetX < left) {
      this.read.textContent = "";
      return;
    }
    const count = (bins.get(bin) || new Map()).get(row) || 0;
    const at = new Date(bin * binMs).toLocaleTimeString("en-GB");
    this.read.textContent = `${at}, ${this.last.words(row)}: ${count.toLocaleString("en")}`;
  }
}
