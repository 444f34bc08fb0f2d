// What happened in the last minutes, as it was told, and what the charts take of it.

import { add, classes, quantile } from "./numbers.js";

export const SPAN_MS = 600_000;
const CALM_MS = 5_000; // percentiles are of the requests of so long: those of one second jump
export const REASONS = ["full", "idle", "latency", "shape", "deadline", "drain", "retry"];

export class Past {
  constructor() {
    this.seconds = [];
  }

  get lastAt() {
    return this.seconds.length ? this.seconds[this.seconds.length - 1].at : 0;
  }

  get firstAt() {
    return this.seconds.length ? this.seconds[0].at : 0;
  }

  add(second) {
    // A stream that begins anew may tell once more what is known.
    if (second.at <= this.lastAt) return;
    this.seconds.push(second);
    while (this.seconds[0].at <= second.at - SPAN_MS) this.seconds.shift();
  }

  // The clock of the engine's host was set back: what is known has other times.
  forgetAfter(at) {
    this.seconds = this.seconds.filter((second) => second.at <= at);
  }

  since(at) {
    let first = this.seconds.length;
    while (first && this.seconds[first - 1].at > at) first -= 1;
    return this.seconds.slice(first);
  }

  marks(from) {
    return this.since(from).flatMap((second) => second.marks.map((mark) => ({ at: second.at, words: mark.words })));
  }

  // What was counted of a model from a time on, and in how many seconds.
  summed(title, from) {
    const sum = { ms: 0, codes: {}, times: {}, closed: {}, sizes: {}, classes: {}, firsts: {}, gaps: {} };
    for (const second of this.since(from)) {
      const own = second.models[title];
      if (!own) continue;
      sum.ms += second.ms;
      for (const key of ["codes", "times", "closed", "sizes", "firsts", "gaps"]) add(sum[key], own[key]);
      for (const [name, counts] of Object.entries(own.classes || {})) {
        const before = sum.classes[name] || counts.map(() => 0);
        sum.classes[name] = counts.map((count, index) => before[index] + count);
      }
    }
    return sum;
  }

  // A second for each point; where nothing was told for a while, a point without values.
  points(from) {
    const found = [];
    for (const second of this.since(from)) {
      const last = found[found.length - 1];
      if (last && second.at - last.at > 2.5 * Math.max(second.ms, 1000)) found.push({ at: last.at + 1, gap: true });
      found.push(second);
    }
    return found;
  }

  throughput(title, from) {
    return columns(this.points(from), 3, (second, put) => {
      const own = second.models[title];
      if (!own) return;
      const { ok, client, server } = classes(own.codes);
      const perSecond = second.ms / 1000 || 1;
      put(ok / perSecond, client / perSecond, server / perSecond);
    });
  }

  percentiles(title, from, bounds) {
    const points = this.points(from - CALM_MS), window = [], sum = {};
    const found = columns(points, 3, (second, put) => {
      const own = (second.models[title] || {}).times || {};
      window.push({ at: second.at, times: own });
      add(sum, own);
      while (window[0].at <= second.at - CALM_MS) {
        for (const [bucket, count] of Object.entries(window.shift().times)) sum[bucket] -= count;
      }
      put(...[0.5, 0.9, 0.99].map((part) => quantile(sum, bounds, part)));
    });
    const first = found[0].findIndex((at) => at * 1000 > from);
    return first <= 0 ? found : found.map((column) => column.slice(first));
  }

  closed(title, from) {
    return columns(this.points(from), REASONS.length, (second, put) => {
      const own = second.models[title];
      if (!own) return;
      const perSecond = second.ms / 1000 || 1;
      put(...REASONS.map((reason) => ((own.closed || {})[reason] || 0) / perSecond));
    });
  }

  queue(title, from) {
    return columns(this.points(from), 2, (second, put) => {
      const own = second.models[title];
      if (own) put(own.waiting || 0, (own.flight || 0) - (own.waiting || 0));
    });
  }

  room(key, from) {
    return columns(this.points(from), 1, (second, put) => put(second[key]));
  }
}

function columns(points, count, values) {
  const found = Array.from({ length: count + 1 }, () => []);
  for (const point of points) {
    found[0].push(point.at / 1000);
    let given = Array(count).fill(null);
    if (!point.gap) values(point, (...those) => { given = those; });
    given.forEach((value, index) => found[index + 1].push(value));
  }
  return found;
}
