// The tables of the page: lanes, workers, the slowest requests, and what happened.

import { bytes, clock, rate, share, time, whole } from "./numbers.js";
import { element, write } from "./models.js";

export const PHASES = ["read", "wait", "queue", "gather", "run", "scatter", "write", "take"];
// A device's copies are no phase, they are within one.
const TIMES = [...PHASES, "copy"];

// Rows are kept and written anew, not made anew: what is selected in them stays selected.
function rows(table, values, key, make, fill) {
  const body = table.tBodies[0], known = (table.known ??= new Map()), wanted = new Set();
  for (const value of values) {
    const name = key(value);
    wanted.add(name);
    if (!known.has(name)) known.set(name, make(value));
    fill(known.get(name), value);
    body.append(known.get(name));
  }
  for (const [name, row] of known) {
    if (wanted.has(name)) continue;
    row.remove();
    known.delete(name);
  }
}

function row(classes, ...firsts) {
  const made = element("tr");
  classes.forEach((name, index) => {
    const head = firsts.includes(index);
    made.append(element(head ? "th" : "td", { class: name || null, scope: head ? "row" : null }));
  });
  return made;
}

function cell(line, index, text) {
  write(line.cells[index], text);
}

function gauge(parent) {
  const bar = element("span", { class: "gauge", "aria-hidden": "true" }, element("i"));
  parent.append(bar, element("span"));
}

function fillGauge(parent, part) {
  parent.firstChild.firstChild.style.width = `${Math.min(part || 0, 1) * 100}%`;
  write(parent.lastChild, share(part));
}

export function workers(table, state) {
  rows(table, state.workers, (worker) => `${worker.number} ${worker.model}`, () => {
    const made = row(["", "name", "", "n", "n", "busy"], 0);
    gauge(made.cells[5]);
    return made;
  }, (line, worker) => {
    cell(line, 0, String(worker.number));
    cell(line, 1, worker.model);
    cell(line, 2, worker.state);
    line.cells[2].className = worker.state.startsWith("ready") ? "good" : worker.state.match(/^(loading|warming)/) ? "unknown" : "bad";
    cell(line, 3, rate(worker.batches));
    cell(line, 4, rate(worker.rows));
    fillGauge(line.cells[5], worker.busy);
  });
}

export function gpus(table, state) {
  const known = (value, text) => value === null ? "–" : text(value);
  rows(table, state.gpus, (gpu) => gpu.uuid, () => {
    const made = row(["", "flow", "busy", "n", "n", "flow"], 0);
    gauge(made.cells[2]);
    return made;
  }, (line, gpu) => {
    cell(line, 0, gpu.uuid);
    cell(line, 1, gpu.workers.join(", "));
    fillGauge(line.cells[2], gpu.busy);
    cell(line, 3, known(gpu.used, (used) => `${bytes(used)}${gpu.total === null ? "" : ` of ${bytes(gpu.total)}`}`));
    cell(line, 4, known(gpu.celsius, (celsius) => `${celsius} °C`));
    cell(line, 5, known(gpu.slowed, (slowed) => slowed.join(", ") || "no"));
    line.cells[5].className = `flow ${gpu.slowed === null ? "unknown" : gpu.slowed.length ? "bad" : "good"}`;
  });
}

export function lanes(table, state) {
  const clients = state.lanes.length - state.client_lanes;
  const values = state.lanes.map(([slots, memory], number) => ({ number, slots, memory }));
  rows(table, values, (lane) => lane.number, () => row(["", "", "n", "n"], 0), (line, lane) => {
    cell(line, 0, String(lane.number));
    cell(line, 1, lane.number < clients ? "frontend" : "client");
    cell(line, 2, whole(lane.slots));
    cell(line, 3, bytes(lane.memory));
  });
}

export function room(values, state) {
  const slots = state.lanes.reduce((sum, lane) => sum + lane[0], 0);
  const memory = state.lanes.reduce((sum, lane) => sum + lane[1], 0);
  const count = state.lanes.length;
  write(values.slots, `${whole(slots)} of ${whole(count * state.lane_slots)}`);
  write(values.memory, `${bytes(memory)} of ${bytes(count * state.lane_bytes)}`);
  for (const [name, number] of Object.entries(state.counts)) {
    if (!values[name]) continue;
    write(values[name], whole(number));
  }
}

function longest(phases) {
  return TIMES.filter((name) => phases[name] > 0)
    .sort((one, other) => phases[other] - phases[one])
    .slice(0, 3)
    .map((name) => `${name} ${time(phases[name])}`)
    .join(", ");
}

function bar(parent, request, most) {
  const stack = element("span", { class: "stack", "aria-hidden": "true" });
  stack.style.width = `${Math.max(2, (100 * request.ms) / most)}%`;
  for (const name of PHASES) {
    const ms = request.phases[name];
    if (!ms) continue;
    const piece = element("i", { "data-phase": name, title: `${name} ${time(ms)}` });
    piece.style.flexGrow = String(ms);
    stack.append(piece);
  }
  parent.replaceChildren(stack, element("span", { class: "said" }, longest(request.phases)));
}

export function slowest(table, requests) {
  const most = Math.max(...requests.map((request) => request.ms), 0.001);
  rows(table, requests, (request) => `${request.at} ${request.id} ${request.ms}`,
    () => row(["n", "phases", "", "name", "n", "", "", "id"], 0),
    (line, request) => {
      cell(line, 0, time(request.ms));
      bar(line.cells[1], request, most);
      cell(line, 2, request.cause);
      cell(line, 3, request.model || "none");
      cell(line, 4, String(request.status));
      const batch = request.batch_rows ? `${request.instances} of ${request.batch_rows}, ${request.reason}` : "none";
      cell(line, 5, request.attempts > 1 ? `${batch}, ${request.attempts} attempts` : batch);
      cell(line, 6, clock(request.at));
      cell(line, 7, request.id);
      line.cells[7].title = [request.protocol, request.trace && `trace ${request.trace}`, request.batch && `batch ${request.batch}`].filter(Boolean).join(", ");
    });
  table.parentElement.hidden = !requests.length;
  document.getElementById("slowest-none").hidden = requests.length > 0;
}

export function happened(list, marks) {
  const latest = marks.slice(-40).reverse();
  const key = latest.map((mark) => `${mark.at} ${mark.words}`).join("\n");
  document.getElementById("marks-none").hidden = latest.length > 0;
  if (list.key === key) return;
  list.key = key;
  list.replaceChildren(...latest.map((mark) => element("li", {},
    element("time", { datetime: new Date(mark.at).toISOString() }, clock(mark.at)), ` ${mark.words}`)));
}
