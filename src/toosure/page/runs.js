// The pages of runs: what is shown and how, axes that move together, the slider through training.
"use strict";
window.toosure = {};
(() => {
  const find = (id) => document.getElementById(id);
  const state = { split: "both", scale: "log", steps: "linear", phase: "train", moment: {} };
  const shown = new Map(); // label of a group -> whether it is drawn
  toosure.state = state;

  // ---- what is drawn -----------------------------------------------------------------------
  const isShown = (group) => {
    const chip = document.querySelector(`.chip[data-group="${group}"]`);
    return !chip || chip.getAttribute("aria-pressed") === "true";
  };

  toosure.arrange = (plot, drawing) => {
    const role = plot.dataset.role;
    if (filled[role]) return frame() ? filled[role](drawing, frame()) : drawing;
    if (!role) return drawing;
    const split = role === "phase" ? state.phase : state.split;
    drawing.data = drawing.data.filter(({ meta }) => isShown(meta.group) &&
      (split === "both" || meta.split === split || meta.split === "" || (meta.split === "edge" && split !== "val")));
    toosure.extend?.(drawing);
    if (role !== "phase") {
      const { xaxis, yaxis } = drawing.layout;
      if (yaxis.type === "log" && state.scale === "linear") Object.assign(yaxis, { type: "linear", dtick: null, tickmode: null, tickvals: null });
      xaxis.type = state.steps;
      if (state.range) Object.assign(xaxis, { range: state.range, autorange: false });
      if (!matchMedia("(pointer: fine)").matches) xaxis.fixedrange = true; // a finger scrolls
    }
    return drawing;
  };

  const panels = () => toosure.plots().filter((plot) => plot.closest(".panels"));
  const lines = toosure.lines = () => toosure.plots().filter((plot) => plot.dataset.role && !filled[plot.dataset.role]);

  function link(plot) {
    plot.on("plotly_relayout", (change) => {
      const range = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (range[0] === undefined && !change["xaxis.autorange"]) return;
      state.range = range[0] === undefined ? null : range;
      for (const other of panels()) if (other !== plot) toosure.draw(other);
    });
  }

  function press(group, value) {
    for (const button of group.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.value === value));
    }
  }

  document.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    const choice = event.target.closest("[data-choice] button");
    if (chip) {
      const pressed = chip.getAttribute("aria-pressed") !== "true";
      chip.setAttribute("aria-pressed", String(pressed));
      shown.set(chip.dataset.label, pressed);
      lines().forEach(toosure.draw);
    } else if (choice) {
      const group = choice.closest("[data-choice]");
      state[group.dataset.choice] = choice.dataset.value;
      if (group.dataset.choice === "steps") state.range = null;
      press(group, choice.dataset.value);
      lines().forEach(toosure.draw);
    }
  });

  // ---- the slider --------------------------------------------------------------------------
  let runs = [];
  let playing = null;
  const frames = () => runs[state.moment.run]?.splits[state.moment.split] || [];
  const frame = () => frames()[state.moment.place];

  const percent = (value) => `${value.toFixed(1)} %`;
  const filled = {
    reliability(drawing, { bins: [, counts, confidence, accuracy, low, high] }) {
      const total = counts.reduce((a, b) => a + b, 0);
      const over = (i) => confidence[i] > accuracy[i];
      const sides = [over, (i) => !over(i)];
      drawing.data.slice(1).forEach((marks, side) => {
        const at = counts.map((_, i) => i).filter(sides[side]);
        const pick = (values) => at.map((i) => values[i]);
        marks.x = pick(confidence);
        marks.y = pick(accuracy);
        marks.customdata = at.map((i) => [counts[i], low[i], high[i]]);
        marks.marker.size = at.map((i) => Math.sqrt(36 + (500 * counts[i]) / total));
        marks.error_y.array = at.map((i) => high[i] - accuracy[i]);
        marks.error_y.arrayminus = at.map((i) => accuracy[i] - low[i]);
      });
      return drawing;
    },
    confidence(drawing, { of, bins: [index, counts, confidence, accuracy] }) {
      const total = counts.reduce((a, b) => a + b, 0);
      const share = counts.map((count) => (100 * count) / total);
      const right = share.map((value, i) => (value * accuracy[i]) / 100);
      const width = 100 / of;
      drawing.data.slice(0, 2).forEach((bars, side) => {
        bars.x = index.map((i) => (i + 0.5) * width);
        bars.y = side ? share.map((value, i) => value - right[i]) : right;
        bars.width = index.map(() => 0.92 * width);
        bars.customdata = index.map((i) => [i * width, (i + 1) * width]);
      });
      const mean = (values) => share.reduce((sum, value, i) => sum + (value * values[i]) / 100, 0);
      const top = 1.05 * Math.max(...share);
      [["accuracy", mean(accuracy)], ["mean confidence", mean(confidence)]].forEach(([name, value], i) => {
        Object.assign(drawing.data[2 + i], { x: [value, value], y: [0, top], name: `${name} ${percent(value)}` });
        document.querySelectorAll('[data-key="confidence"] b')[i].textContent = percent(value);
      });
      return drawing;
    },
    margin(drawing, { range: [low, high], margin }) {
      const total = margin.reduce((a, b) => a + b, 0) || 1;
      const width = (high - low) / margin.length;
      const centre = margin.map((_, i) => low + (i + 0.5) * width);
      [(x) => x < 0, (x) => x >= 0].forEach((side, i) => {
        const at = centre.map((_, k) => k).filter((k) => side(centre[k]));
        drawing.data[i].x = at.map((k) => centre[k]);
        drawing.data[i].y = at.map((k) => (100 * margin[k]) / total);
        drawing.data[i].width = at.map(() => 0.92 * width);
      });
      const all = frames().flatMap((each) => each.range);
      const [from, to] = [Math.min(...all), Math.max(...all)];
      drawing.layout.xaxis.range = [from - 0.02 * (to - from), to + 0.02 * (to - from)];
      return drawing;
    },
  };

  function move() {
    const slider = find("moment-step");
    const each = frames();
    const place = Math.min(state.moment.place, each.length - 1);
    Object.assign(state.moment, { place });
    Object.assign(slider, { max: each.length - 1 });
    slider.value = place;
    find("moment-said").textContent = `step ${each[place].step.toLocaleString("en")}`;
    toosure.plots().filter((plot) => filled[plot.dataset.role]).forEach(toosure.draw);
  }

  function chooseRun(run, isFirst) {
    state.moment.run = Math.min(run, runs.length - 1);
    const splits = Object.keys(runs[state.moment.run].splits);
    if (!splits.includes(state.moment.split)) state.moment.split = splits[0];
    const names = { val: "validation", train: "training" };
    find("moment-split").replaceChildren(...splits.map((split) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: names[split] || split });
      button.dataset.value = split;
      button.addEventListener("click", () => { state.moment.split = split; press(find("moment-split"), split); move(); });
      return button;
    }));
    press(find("moment-split"), state.moment.split);
    if (!isFirst) move();
  }

  function play() {
    const button = find("moment-play");
    if (playing) { clearInterval(playing); playing = null; button.textContent = "▶"; return; }
    if (state.moment.place >= frames().length - 1) state.moment.place = -1;
    button.textContent = "❚❚";
    playing = setInterval(() => {
      if (state.moment.place >= frames().length - 1) return play();
      state.moment.place += 1;
      move();
    }, 350);
  }

  // New snapshots of a live page; the slider follows the newest if it stood there.
  toosure.setFrames = (found) => {
    const atEnd = state.moment.place >= frames().length - 1;
    runs = found;
    if (!runs.length) return;
    const select = find("moment-run");
    state.moment.run = Math.min(state.moment.run ?? 0, runs.length - 1);
    select.value = String(state.moment.run);
    chooseRun(state.moment.run, true);
    if (atEnd || state.moment.place === undefined) state.moment.place = frames().length - 1;
    if (find("moment-step").max !== "") move();
  };

  // Called with the page, and again when a live page is written anew.
  toosure.ready = () => {
    for (const chip of document.querySelectorAll(".chip")) {
      if (shown.has(chip.dataset.label)) chip.setAttribute("aria-pressed", String(shown.get(chip.dataset.label)));
    }
    for (const group of document.querySelectorAll("[data-choice]")) press(group, state[group.dataset.choice]);
    const source = find("frames");
    if (!source) return;
    runs = JSON.parse(source.textContent);
    state.moment.run = Math.min(state.moment.run ?? 0, runs.length - 1);
    find("moment-run").value = String(state.moment.run);
    chooseRun(state.moment.run, true);
    state.moment.place = Math.min(state.moment.place ?? Infinity, frames().length - 1);
    find("moment-run").addEventListener("change", (event) => { state.moment.place = Infinity; chooseRun(Number(event.target.value)); });
    find("moment-step").addEventListener("input", (event) => { state.moment.place = Number(event.target.value); move(); });
    find("moment-play").addEventListener("click", play);
  };
  toosure.started = () => {
    panels().forEach(link);
    if (find("frames")) move();
    toosure.follow?.();
  };
})();
