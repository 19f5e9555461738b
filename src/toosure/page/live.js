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
  const added = toosure.extra; // "run key" -> values since the page was written
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

  function take(run, { cursor, columns }) {
    cursors[run] = cursor;
    const { step, ...values } = columns;
    for (const [key, y] of Object.entries(values)) push(`${run} ${key}`, step, y, step);
    for (const split of ["train", "val"]) {
      const [x, y] = [values[`${split}/gn_sharpness`], values[`${split}/ece`]];
      if (x && y) push(`${run} ${split}/phase`, x, y, step);
    }
  }

  // ---- what happened: a run that diverged, or became too sure ------------------------------
  let verdicts = {}; // of each run: name, status, kind and sentence
  function announce(now) {
    const news = [];
    for (const [run, [name, status, kind, sentence]] of Object.entries(now)) {
      const [, oldStatus, oldKind] = verdicts[run] || [];
      if (status === "diverged" && oldStatus !== "diverged") news.push(`${name}: diverged`);
      else if (kind === "over" && oldKind !== "over") news.push(`${name}: ${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`);
    }
    verdicts = now;
    if (!news.length) return;
    const list = find("alerts");
    list.prepend(...news.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    while (list.children.length > 5) list.lastChild.remove();
    list.hidden = false;
  }

  // ---- new sections in the place of old ones; what was folded or is being used stays -------
  function replace(id, html) {
    const old = find(id);
    if (!old || old.contains(document.activeElement)) return;
    const isFolded = old.querySelector(":scope > details")?.open === false;
    const inner = ":scope > details details > summary";
    const opened = new Set([...old.querySelectorAll(inner)].filter((each) => each.parentElement.open).map((each) => each.textContent));
    const scrolled = [...old.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    old.outerHTML = html;
    const fresh = find(id);
    if (isFolded) fresh?.querySelector(":scope > details")?.removeAttribute("open");
    fresh?.querySelectorAll(inner).forEach((each) => { each.parentElement.open = opened.has(each.textContent); });
    fresh?.querySelectorAll(".scroll").forEach((box, i) => { if (scrolled[i]) [box.scrollLeft, box.scrollTop] = scrolled[i]; });
  }

  async function writeAnew() {
    const { title, html, cursors: now, structure: shape } = await ask("body");
    const top = window.scrollY;
    document.title = title;
    find("all").innerHTML = html;
    added.clear();
    [cursors, structure] = [now, shape];
    toosure.ready();
    toosure.watchPlots();
    window.scrollTo(0, top);
  }

  async function refresh() {
    const parts = await ask("sections");
    document.title = parts.title;
    for (const [id, html] of Object.entries(parts.html)) {
      replace(id, html);
      await new Promise((done) => { setTimeout(done); }); // one section at a time: the page answers
    }
    toosure.tablesChanged();
    announce(parts.verdicts);
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
        if (changed.length && !document.hidden) toosure.linePlots().forEach(toosure.redraw);
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
    ({ cursors, structure, stamp, verdicts } = JSON.parse(find("cursors").textContent));
    beat();
  };
})();
