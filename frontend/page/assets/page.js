// The page: takes what the engine tells, and shows it.

import { Chart } from "./charts.js";
import { ModelCard, numbers, write } from "./models.js";
import { bytes, clock, duration, whole } from "./numbers.js";
import { Past } from "./past.js";
import * as tables from "./tables.js";

const AGAIN_MS = 3_000;
const SAY_EVERY_MS = 10_000; // sentences under charts: to be read, they must stand still
const LEAST_SPAN_MS = 60_000;
const OPEN_AT_FIRST = 4; // models with their charts shown; those of the others are a click away
const byId = (id) => document.getElementById(id);

const past = new Past(), cards = new Map();
const view = { spanMs: 300_000, heat: "times", held: false };
let terms = null, state = null, slowest = [], source = null, again = 0, due = false, saidAt = 0, heldAt = 0;

const counted = numbers(byId("room"), [
  ["slots", "Slots taken"], ["memory", "Memory taken"], ["refused", "Refused"], ["late", "Late"], ["given up", "Given up"],
  ["workers died", "Workers died"], ["hung", "Hung"], ["quarantined", "Quarantined"],
]);
const slots = new Chart("Slots taken", [{ name: "slots", colour: "ok" }], { stacked: true, write: whole });
const memory = new Chart("Payload memory taken", [{ name: "memory", colour: "p50" }], { stacked: true, binary: true, write: bytes });
byId("room-charts").append(slots.root, memory.root);

// The stream.

function connect() {
  clearTimeout(again);
  source?.close();
  source = new EventSource(past.lastAt ? `live?after=${past.lastAt}` : "live");
  source.addEventListener("terms", (event) => { terms = JSON.parse(event.data); draw(); });
  source.addEventListener("second", (event) => { past.add(JSON.parse(event.data)); draw(); });
  source.addEventListener("slowest", (event) => { slowest = JSON.parse(event.data); draw(); });
  source.addEventListener("state", (event) => {
    const before = state;
    state = JSON.parse(event.data);
    if (state.at < past.lastAt - 5_000) past.forgetAfter(state.at);
    if (before && before.segment !== state.segment) tell(`The engine was started anew; since ${clock(state.at)} this is process ${state.pid}.`);
    else tell(`Live: the engine is ${state.state}.`);
    draw();
  });
  source.addEventListener("error", lost);
}

function lost() {
  const since = state ? `No answer since ${clock(state.at)}` : "No answer yet";
  mark("bad", "no answer");
  tell(`${since}, trying again.`, true);
  // A browser tries again by itself where the connection broke, and does not where it was refused.
  if (source.readyState !== EventSource.CLOSED) return;
  again = setTimeout(connect, AGAIN_MS);
  refusal().then((words) => { if (words) tell(`${since}: ${words}. Trying again.`, true); });
}

async function refusal() {
  const stop = new AbortController();
  try {
    const answer = await fetch("live", { signal: stop.signal, cache: "no-store" });
    return answer.ok ? "" : (await answer.json()).error;
  } catch {
    return "";
  } finally {
    stop.abort();
  }
}

function tell(words, alarm = false) {
  write(byId("liveness"), words);
  byId("liveness").classList.toggle("alarm", alarm);
}

function mark(kind, words) {
  byId("state").dataset.state = kind;
  write(byId("state"), words);
}

// The drawing.

function draw() {
  if (due) return;
  due = true;
  // Events of the past come in crowds.
  requestAnimationFrame(() => setTimeout(() => { due = false; show(); }, 30));
}

function show() {
  if (!state || !terms) return;
  showEngine();
  const to = view.held ? heldAt : Math.max(state.at, past.lastAt);
  // What began a moment ago fills its charts.
  const from = Math.max(to - view.spanMs, Math.min(past.firstAt, to - LEAST_SPAN_MS));
  const marks = past.marks(from), say = Date.now() - saidAt > SAY_EVERY_MS;
  if (say) saidAt = Date.now();
  showModels({ from, to, marks, say, heat: view.heat });
  if (view.held) return;
  slots.show(past.room("slots", from), marks, from, to);
  memory.show(past.room("memory", from), marks, from, to);
  if (say) sayRoom(from);
  tables.room(counted, state);
  tables.lanes(byId("lanes"), state);
  tables.workers(byId("workers"), state);
  byId("gpu-card").hidden = !state.gpus.length;
  tables.gpus(byId("gpus"), state);
  tables.slowest(byId("slowest"), slowest);
  tables.happened(byId("marks"), marks);
}

function showEngine() {
  document.title = `${state.engine} – ringbatch`;
  write(byId("engine"), state.engine);
  document.querySelector(".brand").hidden = state.engine === "ringbatch";
  if (source.readyState === EventSource.OPEN) {
    const why = state.models.some((model) => model.why);
    mark(state.state !== "ready" ? "unknown" : why ? "bad" : "good", why && state.state === "ready" ? "not ready" : state.state);
  }
  const up = state.ready_ms ? `, ready for ${duration(state.ready_ms)}` : "";
  write(byId("facts"), `${state.version ? `version ${state.version}, ` : ""}process ${state.pid}${up}`);
  const url = publicUrl();
  for (const [id, path] of [["docs", "/docs"], ["openapi", "/openapi.json"]]) {
    byId(id).hidden = !url;
    if (url && byId(id).href !== url + path) byId(id).href = url + path;
  }
}

// Where clients are served; an address that stands for all of a host's is reached as this page is.
function publicUrl() {
  if (!state.public) return "";
  const url = new URL(state.public);
  if (["0.0.0.0", "[::]"].includes(url.hostname)) url.hostname = location.hostname;
  return url.origin;
}

function showModels(shown) {
  const listed = new Map(state.models.map((model) => [model.title, model]));
  for (const title of listed.keys()) {
    if (cards.has(title)) continue;
    const card = new ModelCard(title, cards.size);
    cards.set(title, card);
    byId("models").append(card.root);
    if (cards.size > OPEN_AT_FIRST) card.open(false);
  }
  for (const [title, card] of cards) {
    const model = listed.get(title) || null;
    if (!model && !past.summed(title, shown.from).ms) {
      card.root.remove();
      cards.delete(title);
      continue;
    }
    card.now(model);
    card.past(past, terms, shown);
  }
}

function sayRoom(from) {
  const most = (key) => past.since(from).reduce((high, second) => Math.max(high, second[key]), 0);
  slots.say(`At most ${whole(most("slots"))} of ${whole(state.lanes.length * state.lane_slots)} slots were taken.`);
  memory.say(`At most ${bytes(most("memory"))} of ${bytes(state.lanes.length * state.lane_bytes)} were taken.`);
}

// What people do.

function choose(attribute, then) {
  const buttons = [...document.querySelectorAll(`button[data-${attribute}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      then(button.dataset[attribute]);
      saidAt = 0;
      draw();
    });
  }
}

choose("span", (seconds) => { view.spanMs = Number(seconds) * 1000; });
choose("heat", (kind) => { view.heat = kind; });
byId("pause").addEventListener("click", () => {
  view.held = !view.held;
  heldAt = past.lastAt;
  byId("pause").setAttribute("aria-pressed", String(view.held));
  draw();
});
byId("models").addEventListener("opened", () => { saidAt = 0; draw(); });

function repaint() {
  for (const card of cards.values()) card.repaint();
  slots.repaint();
  memory.repaint();
  draw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

// A page that nobody sees costs nothing; what it missed is told when it is seen again.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(again);
    source.close();
  } else {
    connect();
  }
});
connect();
