// The slider through training: three figures of one moment of one run.
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const { state } = toosure;
  let runs = [];
  let playing = null;
  const frames = () => runs[state.moment.run]?.splits[state.moment.split] || [];
  const frame = () => frames()[state.moment.place];

  // What the figures of the run say: of the predicted class, or of P(class 1).
  const allWords = () => JSON.parse(find("moments").querySelector(".triple").dataset.words);
  const words = () => allWords()[runs[state.moment.run].words];
  const worded = (drawing) => {
    const { top } = allWords();
    const said = (text) => text.replace(top.claimed, words().claimed).replace(top.true, words().true);
    [drawing.layout.xaxis, drawing.layout.yaxis].forEach((axis) => { axis.title.text = said(axis.title.text); });
    drawing.data.forEach((marks) => { if (marks.hovertemplate) marks.hovertemplate = said(marks.hovertemplate); });
    return drawing;
  };

  const percent = (value) => `${value.toFixed(1)} %`;
  const filled = {
    reliability(drawing, { bins: [, counts, confidence, accuracy, low, high] }) {
      const total = counts.reduce((a, b) => a + b, 0);
      const over = (i) => high[i] < confidence[i];
      const under = (i) => low[i] > confidence[i];
      const sides = [over, under, (i) => !over(i) && !under(i)];
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
      return worded(drawing);
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
      [[words().true, mean(accuracy)], [words().mean_claimed, mean(confidence)]].forEach(([name, value], i) => {
        Object.assign(drawing.data[2 + i], { x: [value, value], y: [0, top], name: `${name} ${percent(value)}` });
        document.querySelectorAll('[data-key="confidence"] b')[i].textContent = percent(value);
      });
      return worded(drawing);
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
    toosure.plots().filter((plot) => filled[plot.dataset.role]).forEach(toosure.redraw);
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
      button.addEventListener("click", () => { state.moment.split = split; toosure.press(find("moment-split"), split); move(); });
      return button;
    }));
    toosure.press(find("moment-split"), state.moment.split);
    find("moments").querySelectorAll("[data-word]").forEach((each) => { each.textContent = words()[each.dataset.word]; });
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

  // A figure of the moment: the example that Python drew, with the numbers of the frame in it.
  toosure.momentFigure = (plot) => {
    const fill = filled[plot.dataset.role];
    return fill && frame() ? fill(structuredClone(plot.figure), frame()) : null;
  };

  toosure.readyMoments = () => {
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
    move();
  };
})();
