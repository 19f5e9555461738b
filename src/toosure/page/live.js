// The live page: asks for new rows, adds them to the lines, and outlives a restart of the server.
"use strict";
(() => {
  const PAUSE = 500; // between questions, and so between drawings
  const MOST_BYTES = 50000; // of the cursors in one question; the other runs are asked about next
  const MOST = 3000; // points of a line before it is thinned
  const token = new URLSearchParams(location.search).get("token");
  const address = (path) => (token ? `${path}?token=${encodeURIComponent(token)}` : path);
  const find = (id) => document.getElementById(id);
  let cursors = {};
  let added = new Map(); // "run key" -> values since the page was written
  let structure = "";
  let stamp = "";
  let refreshed = 0;
  let asked = 0; // runs of the last question

  async function ask(path, body) {
    const options = body ? { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {};
    const answer = await fetch(address(path), { ...options, cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  // The lowest and highest of each stretch, as `toosure.figures.thin` keeps them.
  function extremes(y, most) {
    if (y.length <= most) return y.map((_, i) => i);
    const kept = new Set([0, y.length - 1]);
    const stretches = (most - 2) >> 1;
    for (let k = 0; k < stretches; k += 1) {
      const [from, to] = [Math.floor((k * y.length) / stretches), Math.floor(((k + 1) * y.length) / stretches)];
      let [low, high] = [from, from];
      for (let i = from; i < to; i += 1) { if (y[i] < y[low]) low = i; if (y[i] > y[high]) high = i; }
      kept.add(low).add(high);
    }
    return [...kept].sort((a, b) => a - b);
  }

  function push(key, x, y, step) {
    const line = added.get(key) || { x: [], y: [], step: [] };
    x.forEach((value, i) => {
      if (y[i] === null || value === null) return;
      line.x.push(value);
      line.y.push(y[i]);
      line.step.push(step[i]);
    });
    if (line.y.length > MOST) {
      const kept = extremes(line.y, MOST / 2);
      for (const part of ["x", "y", "step"]) line[part] = kept.map((i) => line[part][i]);
    }
    added.set(key, line);
  }

  // Few, round ticks on a log axis that grew, as `toosure.figures` chooses them.
  function retick(axis, values) {
    if (axis.type !== "log") return;
    const logs = values.flat().filter((value) => value > 0).map(Math.log10);
    if (!logs.length) return;
    const [low, high] = [logs.reduce((a, b) => Math.min(a, b), Infinity), logs.reduce((a, b) => Math.max(a, b), -Infinity)];
    const decades = high - low;
    if (decades > 0 && decades < 0.8) {
      Object.assign(axis, { tickmode: "array", tickvals: roundTicks(10 ** low, 10 ** high), dtick: null });
      return;
    }
    Object.assign(axis, { tickmode: null, tickvals: null, dtick: decades >= 2 ? Math.ceil(decades / 6) : decades ? "D2" : 1 });
  }

  function roundTicks(low, high) {
    const least = (high - low) / 5;
    const unit = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((k) => k * unit).find((each) => each >= least) || 10 * unit;
    const found = [];
    for (let k = Math.ceil(low / step) - 1; k <= Math.floor(high / step) + 1; k += 1) if (k > 0) found.push(Number((k * step).toPrecision(6)));
    return found;
  }

  function take(run, { cursor, columns }) {
    cursors[run] = cursor;
    const { step, ...values } = columns;
    for (const [key, y] of Object.entries(values)) push(`${run} ${key}`, step, y, step);
    for (const split of ["train", "val"]) {
      const [x, y] = [values[`${split}/gn_sharpness`], values[`${split}/ece`]];
      if (x && y) push(`${run} ${split}/phase`, x, y, step);
    }
  }

  const TYPES = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };
  function plain(values) { // Plotly writes long arrays as base64
    if (!values || !values.bdata) return values || [];
    const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
    return [...new TYPES[values.dtype](bytes.buffer)];
  }

  toosure.extend = (drawing) => {
    for (const trace of drawing.data) {
      const { run, key, split } = trace.meta;
      const name = key === "stability" ? key : key === "ends" ? `${split}/phase` : `${split}/${key}`;
      const more = added.get(`${run} ${name}`);
      if (!more || !more.x.length) continue;
      if (key === "ends") {
        trace.x = [plain(trace.x)[0], more.x.at(-1)];
        trace.y = [plain(trace.y)[0], more.y.at(-1)];
        trace.customdata = [plain(trace.customdata)[0], more.step.at(-1)];
        continue;
      }
      trace.x = plain(trace.x).concat(more.x);
      trace.y = plain(trace.y).concat(more.y);
      if (key === "phase") trace.customdata = plain(trace.customdata).concat(more.step);
      if (trace.mode === "markers") trace.mode = "lines";
    }
    if (!added.size) return;
    retick(drawing.layout.yaxis, drawing.data.map((trace) => plain(trace.y)));
    retick(drawing.layout.xaxis, drawing.data.map((trace) => plain(trace.x)));
  };

  async function writeAnew() {
    const { html, cursors: now, structure: shape } = await ask("body");
    const top = window.scrollY;
    toosure.plots().forEach((plot) => Plotly.purge(plot));
    find("all").innerHTML = html;
    [cursors, structure, added] = [now, shape, new Map()];
    toosure.ready();
    toosure.drawAll();
    toosure.started();
    window.scrollTo(0, top);
  }

  async function refresh() {
    const parts = await ask("sections");
    for (const [id, html] of Object.entries(parts.html)) {
      const old = find(id);
      if (old) old.outerHTML = html;
    }
    if (find("frames")) toosure.setFrames(parts.frames);
    else if (parts.frames.length) structure = ""; // the first snapshot: a new section
    refreshed = Date.now();
  }

  function say(text, isWell) {
    find("pulse").className = isWell ? "well" : "ill";
    find("said").textContent = text;
  }

  // As many cursors as a question may hold, beginning after those of the last one.
  function someCursors() {
    const runs = Object.keys(cursors);
    const some = {};
    let bytes = 0;
    for (let i = 0; i < runs.length; i += 1) {
      const run = runs[(asked + i) % runs.length];
      bytes += 3 * run.length + 60;
      if (bytes > MOST_BYTES) {
        asked = (asked + i) % runs.length;
        return some;
      }
      some[run] = cursors[run];
    }
    return some;
  }

  async function beat() {
    try {
      const news = await ask("rows", { cursors: someCursors() });
      const { running, total } = news;
      say(running ? `live · ${running} of ${total} running` : `live · ${total} at rest`, true);
      if (news.structure !== structure) await writeAnew();
      else {
        const changed = Object.entries(news.runs);
        changed.forEach(([run, rows]) => take(run, rows));
        if (changed.length && !document.hidden) toosure.lines().forEach(toosure.draw);
        if ((changed.length || news.stamp !== stamp) && Date.now() - refreshed > 2000) {
          await refresh();
          stamp = news.stamp;
        }
      }
    } catch (error) {
      say(error.message === "403" ? "not allowed: open the address that the server printed" : "waiting for the server …", false);
    }
    setTimeout(beat, PAUSE);
  }

  let going = false;
  toosure.follow = () => {
    find("save").href = address("report");
    if (going) return;
    going = true;
    ({ cursors, structure, stamp } = JSON.parse(find("cursors").textContent));
    beat();
  };
})();
