// How numbers and times are written, and what is computed of counts. Nothing of the page.

export function rate(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value >= 100 || value === 0) return Math.round(value).toLocaleString("en");
  return value >= 10 ? value.toFixed(0) : value.toFixed(1);
}

export function whole(count) {
  return count === null || count === undefined ? "–" : Math.round(count).toLocaleString("en");
}

export function time(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms === 0) return "0";
  if (ms < 1) return `${(ms * 1000).toFixed(ms < 0.01 ? 1 : 0)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
  return `${ms < 10000 ? (ms / 1000).toFixed(2) : (ms / 1000).toFixed(0)} s`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit += 1) count /= 1024;
  return `${count < 10 && unit ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export function share(part) {
  if (part === null || part === undefined || Number.isNaN(part)) return "–";
  if (part === 0) return "0 %";
  const percent = 100 * part;
  return `${percent < 1 ? percent.toPrecision(1) : percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

export function duration(ms) {
  const seconds = Math.floor(ms / 1000), minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} days`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes >= 2 ? `${minutes} min` : `${seconds} s`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function total(counts) {
  return Object.values(counts || {}).reduce((sum, count) => sum + count, 0);
}

export function add(into, counts) {
  for (const [name, count] of Object.entries(counts || {})) into[name] = (into[name] || 0) + count;
  return into;
}

// Statuses of a model by their class: what was answered, what clients did, what the engine did.
export function classes(codes) {
  const found = { ok: 0, client: 0, server: 0 };
  for (const [code, count] of Object.entries(codes || {})) {
    found[code[0] === "2" ? "ok" : code[0] === "4" ? "client" : "server"] += count;
  }
  return found;
}

// What the classes of a model's requests got: empty where no request has another class than normal.
export function classWords(found, seconds) {
  if (!seconds) return "";
  const whole = Object.values(found).reduce((sum, [, , run]) => sum + run, 0);
  return Object.entries(found).map(([name, [parts, wait, run, refused]]) => {
    const words = [`${name}: ${rate(parts / seconds)} requests/s`];
    if (parts) words.push(`queue ${time(wait / parts)}`);
    if (whole) words.push(`${share(run / whole)} of the model`);
    if (refused) words.push(`${rate(refused / seconds)} refused/s`);
    return words.join(", ");
  }).join("; ");
}

// Below which time that share of the requests was answered, as though they lay evenly in a bucket.
export function quantile(times, bounds, part) {
  const count = total(times);
  if (!count) return null;
  let reached = 0;
  for (let bucket = 0; bucket <= bounds.length; bucket += 1) {
    const own = times[bucket] || 0;
    if (own && reached + own >= part * count) {
      const low = bucket ? bounds[bucket - 1] : 0;
      if (bucket === bounds.length) return low;
      return low + ((bounds[bucket] - low) * (part * count - reached)) / own;
    }
    reached += own;
  }
  return bounds[bounds.length - 1];
}

export function bucketWords(bucket, bounds) {
  if (bucket === 0) return `below ${time(bounds[0])}`;
  if (bucket === bounds.length) return `above ${time(bounds[bucket - 1])}`;
  return `${time(bounds[bucket - 1])} to ${time(bounds[bucket])}`;
}

// The mean size of batches, by the middles of what their sizes are called.
export function meanSize(sizes) {
  let batches = 0, rows = 0;
  for (const [label, count] of Object.entries(sizes || {})) {
    const [low, high] = label.split("-").map((word) => parseInt(word, 10));
    batches += count;
    rows += count * (high ? (low + high) / 2 : low);
  }
  return batches ? rows / batches : null;
}
