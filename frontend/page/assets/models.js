// A card for each model: its numbers, and charts of its last minutes.

import { Chart, HeatMap } from "./charts.js";
import { bucketWords, classWords, classes, duration, meanSize, quantile, rate, share, time, total, whole } from "./numbers.js";
import { REASONS } from "./past.js";

const NOW_MS = 10_000;
const NUMBERS = [
  ["rate", "Requests/s"], ["errors", "Errors/s"], ["p50", "p50"], ["p90", "p90"], ["p99", "p99"],
  ["flight", "In flight"], ["waiting", "Waiting"], ["oldest", "Oldest waits"], ["expect", "Expected"],
  ["size", "Mean batch"], ["workers", "Workers ready"], ["parts", "Parts/s"], ["first", "First part, p50"],
];
const OF_PARTS = ["parts", "first"];

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function write(node, text) {
  // Nothing is touched that says the same: selections stay, and screen readers are not told again.
  if (node.textContent !== text) node.textContent = text;
}

export function numbers(list, names) {
  const found = {};
  for (const [key, words] of names) {
    found[key] = element("dd", {}, "–");
    list.append(element("div", { class: `number ${key}` }, element("dt", {}, words), found[key]));
  }
  return found;
}

export class ModelCard {
  constructor(title, number) {
    this.title = title;
    const id = `model-${number}`;
    this.name = element("h2", { id }, title);
    this.tag = element("span", { class: "pill" });
    this.why = element("p", { class: "notice", hidden: "" });
    const list = element("dl", { class: "numbers" });
    this.values = numbers(list, NUMBERS);
    this.classes = element("p", { class: "said", hidden: "" });
    this.throughput = new Chart("Requests/s by status", [
      { name: "answered", colour: "ok" }, { name: "4xx", colour: "client" }, { name: "5xx", colour: "server" },
    ], { stacked: true, words: true, write: rate });
    this.latency = new Chart("Latency, percentiles of 5 s", [
      { name: "p50", colour: "p50", dash: [0] }, { name: "p90", colour: "p90", dash: [6, 3] }, { name: "p99", colour: "p99", dash: [2, 3] },
    ], { log: true, write: time });
    this.heat = new HeatMap("Latency");
    this.closed = new Chart("Batches/s by what closed them", REASONS.map((name) => ({ name, colour: `r-${name}` })), { stacked: true, write: rate });
    this.queue = new Chart("Requests under way", [
      { name: "waiting", colour: "client" }, { name: "with a worker", colour: "ok" },
    ], { stacked: true, write: whole });
    this.heat.root.classList.add("broad");
    this.figures = [this.throughput, this.latency, this.closed, this.heat, this.queue];
    this.charts = element("div", { class: "charts" }, ...this.figures.map((figure) => figure.root));
    this.fold = element("button", { type: "button", class: "fold", "aria-expanded": "true", "aria-controls": `${id}-charts` }, "Charts");
    this.charts.id = `${id}-charts`;
    this.fold.addEventListener("click", () => this.open(this.charts.hidden));
    this.root = element("section", { class: "card model", "aria-labelledby": id },
      element("div", { class: "name" }, this.name, this.tag, this.fold), this.why, list, this.classes, this.charts);
  }

  open(shown) {
    this.charts.hidden = !shown;
    this.fold.setAttribute("aria-expanded", String(shown));
    this.root.dispatchEvent(new CustomEvent("opened", { bubbles: true }));
  }

  repaint() {
    for (const figure of this.figures) figure.repaint();
  }

  // How it is now; null where it is no longer among the models.
  now(model) {
    write(this.tag, model === null ? "gone" : model.why ? "not ready" : model.state);
    this.tag.dataset.state = model === null || model.why ? "bad" : model.state === "serving" ? "good" : "unknown";
    this.why.hidden = !(model && model.why);
    write(this.why, (model && model.why) || "");
    if (model === null) return;
    for (const key of OF_PARTS) this.values[key].parentElement.hidden = !model.parts;
    const spares = model.spares ? ` + ${model.spares}` : "";
    write(this.values.flight, whole(model.flight));
    write(this.values.waiting, whole(model.waiting));
    write(this.values.oldest, model.waiting ? time(model.oldest_ms) : "–");
    write(this.values.expect, model.expect_ms ? time(model.expect_ms) : "at once");
    const wanted = model.limits ? model.limits.join(" to ") : model.running;
    write(this.values.workers, `${model.ready} of ${wanted}${spares}`);
  }

  past(past, terms, view) {
    const { from, to, marks } = view, bounds = terms.bounds_ms;
    const lately = past.summed(this.title, past.lastAt - NOW_MS);
    const seconds = lately.ms / 1000;
    const ends = classes(lately.codes), failed = ends.client + ends.server;
    const [p50, p90, p99] = [0.5, 0.9, 0.99].map((part) => quantile(lately.times, bounds, part));
    write(this.values.rate, seconds ? rate(total(lately.codes) / seconds) : "–");
    write(this.values.errors, seconds ? rate(failed / seconds) : "–");
    this.values.errors.parentElement.classList.toggle("alarm", failed > 0);
    write(this.values.p50, time(p50));
    write(this.values.p90, time(p90));
    write(this.values.p99, time(p99));
    write(this.values.parts, seconds ? rate((total(lately.firsts) + total(lately.gaps)) / seconds) : "–");
    write(this.values.first, time(quantile(lately.firsts, bounds, 0.5)));
    const size = meanSize(lately.sizes);
    write(this.values.size, size === null ? "–" : `≈ ${size.toFixed(1)}`);
    const byClass = classWords(lately.classes, seconds);
    this.classes.hidden = !byClass;
    write(this.classes, byClass);
    if (this.charts.hidden) return;
    this.throughput.show(past.throughput(this.title, from), marks, from, to);
    this.latency.show(past.percentiles(this.title, from, bounds), marks, from, to);
    this.closed.show(past.closed(this.title, from), marks, from, to);
    this.queue.show(past.queue(this.title, from), marks, from, to);
    this.heatMap(past, terms, view);
    if (view.say) this.inSentences(past.summed(this.title, from), past, terms, view);
  }

  heatMap(past, terms, { from, to, marks, heat }) {
    const points = past.points(from), own = (second) => second.models[this.title] || {};
    if (heat === "sizes") {
      const place = new Map(terms.sizes.map((label, index) => [label, index]));
      this.heat.show("Batches by their size", terms.sizes, false, (row) => `batches of ${terms.sizes[row]}`,
        (second) => Object.entries(own(second).sizes || {}).map(([label, count]) => [place.get(label), count]),
        points, marks, from, to);
      return;
    }
    const rows = [...terms.bounds_ms.map(time), "more"], gaps = heat === "gaps";
    this.heat.show(gaps ? "Parts by the time since the one before" : "Requests by their latency", rows, true, (row) => bucketWords(row, terms.bounds_ms),
      (second) => Object.entries(own(second)[gaps ? "gaps" : "times"] || {}).map(([bucket, count]) => [Number(bucket), count]),
      points, marks, from, to);
  }

  inSentences(sum, past, terms, { from, to, heat }) {
    const minutes = `the last ${duration(to - from)}`, bounds = terms.bounds_ms;
    const ends = total(sum.codes), seconds = sum.ms / 1000;
    const codes = Object.entries(sum.codes).map(([code, count]) => `${code}: ${count.toLocaleString("en")}`).join(", ");
    this.throughput.say(ends ? `In ${minutes} ${ends.toLocaleString("en")} requests ended, ${rate(ends / seconds)} a second. ${codes}.` : `No request ended in ${minutes}.`);
    const [p50, p90, p99] = [0.5, 0.9, 0.99].map((part) => time(quantile(sum.times, bounds, part)));
    const answered = total(sum.times);
    this.latency.say(answered ? `Over all of it: half within ${p50}, 90 % within ${p90}, 99 % within ${p99}.` : `Nothing was answered in ${minutes}.`);
    const [counts, words] = heat === "sizes" ? [sum.sizes, (label) => `of ${label}`] : [sum[heat], (bucket) => bucketWords(Number(bucket), bounds)];
    const most = Object.entries(counts).sort((one, other) => other[1] - one[1]).slice(0, 3);
    const all = total(counts);
    this.heat.say(all ? `Most: ${most.map(([label, count]) => `${words(label)} ${share(count / all)}`).join(", ")}.` : "Nothing to show.");
    const batches = total(sum.closed);
    const reasons = Object.entries(sum.closed).sort((one, other) => other[1] - one[1]).map(([reason, count]) => `${reason} ${share(count / batches)}`);
    this.closed.say(batches ? `${batches.toLocaleString("en")} batches: ${reasons.join(", ")}.` : "No batch was closed.");
    const [, waiting, held] = past.queue(this.title, from);
    this.queue.say(`At most ${whole(Math.max(0, ...waiting))} waited, and ${whole(Math.max(0, ...held))} were with a worker, looked at once a second.`);
  }
}
