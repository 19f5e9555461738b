// Linked panels: lines of settings with bands over seeds, one crosshair, one zoom for all.
"use strict";
(() => {
  const MAX_READ = 12; // settings that a reading lists
  const find = (id) => document.getElementById(id);
  const state = toosure.state = { split: "val", seeds: "band", scale: "log", steps: "linear", phase: "train", range: null, moment: {} };
  toosure.shown = new Set(); // labels of the settings that are drawn
  toosure.extra = new Map(); // "run split/key" -> points that came since the page was written
  let lines = { groups: [], runs: [], panels: [], phase: [], arrays: [], palette: [] };

  toosure.readLines = () => {
    const source = find("lines");
    if (source) lines = JSON.parse(source.textContent);
    lines.unpacked = [];
    lines.byKey = new Map(lines.panels.map((panel) => [panel.key, panel]));
    return lines;
  };
  toosure.lines = () => lines;
  const array = (place) => (lines.unpacked[place] ??= toosure.unpack(lines.arrays[place]));
  const isShown = (group) => toosure.shown.has(lines.groups[group].label);

  // A setting that comes into sight takes its own colour, or where another has that, a free one.
  const colours = new Map(); // label -> place in the palette
  toosure.assignColours = () => {
    for (const label of [...colours.keys()]) if (!toosure.shown.has(label)) colours.delete(label);
    for (const { label, colour } of lines.groups) {
      if (!toosure.shown.has(label) || colours.has(label)) continue;
      const taken = new Set(colours.values());
      const free = [colour, ...lines.palette.keys()].find((place) => !taken.has(place));
      colours.set(label, free ?? colour);
    }
  };
  toosure.placeOf = (group) => colours.get(lines.groups[group].label) ?? lines.groups[group].colour;
  toosure.colourOf = (group) => lines.palette[toosure.placeOf(group)];

  // The points of one line: those of the page, then those that came since.
  function pointsOf(key, [run, split, steps, values]) {
    const more = toosure.extra.get(`${lines.runs[run][0]} ${split === "edge" ? "stability" : split ? `${split}/${key}` : `/${key}`}`);
    const [x, y] = [array(steps), array(values)];
    return more?.x.length ? { x: [...x, ...more.x], y: [...y, ...more.y] } : { x, y };
  }

  function valueAt({ x, y }, step) {
    let [low, high] = [0, x.length - 1];
    if (high < 0 || step < x[0] || step > x[high]) return NaN;
    while (high - low > 1) { const middle = (low + high) >> 1; if (x[middle] <= step) low = middle; else high = middle; }
    if (x[high] === x[low]) return y[low];
    return y[low] + ((y[high] - y[low]) * (step - x[low])) / (x[high] - x[low]);
  }
  toosure.valueAt = valueAt;

  // Mean, lowest and highest of several seeds, where all have a value.
  function overSeeds(seeds) {
    const longest = seeds.reduce((a, b) => (b.x.length > a.x.length ? b : a));
    const band = { x: [], y: [], low: [], high: [] };
    for (const step of longest.x) {
      const values = seeds.map((seed) => valueAt(seed, step));
      if (values.some(Number.isNaN)) continue;
      band.x.push(step);
      band.y.push(values.reduce((a, b) => a + b, 0) / values.length);
      band.low.push(Math.min(...values));
      band.high.push(Math.max(...values));
    }
    return band;
  }

  function lineTrace(points, group, split, isThin) {
    const colour = toosure.colourOf(group);
    const isTraining = split === "train" || split === "edge";
    const faint = (isTraining && state.split === "both") || isThin;
    return {
      type: "scatter", mode: points.x.length > 1 ? "lines" : "markers", x: points.x, y: points.y, group, split,
      line: { color: colour, width: isTraining || isThin ? 1.2 : 2, dash: split === "edge" ? "dash" : split === "train" ? "dot" : "solid" },
      marker: { color: colour, size: 7 }, opacity: faint ? 0.55 : 1,
    };
  }

  function bandTrace(band, group, split) {
    return { type: "scatter", mode: "lines", fill: "toself", fillcolor: toosure.colourOf(group), opacity: split === "train" ? 0.08 : 0.18, x: [...band.x, ...band.x.slice().reverse()], y: [...band.high, ...band.low.slice().reverse()] };
  }

  // The traces of some settings in one panel: a line each, with a band where there are seeds.
  toosure.tracesOf = (panel, groups) => {
    const splits = new Set(panel.lines.map(([, split]) => split));
    const wanted = state.split === "both" || (state.split === "val" && !splits.has("val") && !splits.has("")) ? ["val", "train", ""] : [state.split, ""];
    if (state.split === "train" && !splits.has("train")) wanted.push("val");
    const traces = [];
    for (const group of groups) {
      for (const split of [...wanted, "edge"]) {
        const own = panel.lines.filter((line) => lines.runs[line[0]][2] === group && line[1] === split);
        const seeds = (split === "edge" ? own.slice(0, 1) : own).map((line) => pointsOf(panel.key, line));
        if (!seeds.length) continue;
        if (seeds.length > 1 && state.seeds === "band") {
          const band = overSeeds(seeds);
          traces.push(bandTrace(band, group, split), lineTrace(band, group, split));
        } else traces.push(...seeds.map((seed) => lineTrace(seed, group, split, seeds.length > 1)));
      }
    }
    return traces.sort((a, b) => Boolean(b.fill) - Boolean(a.fill));
  };

  // With `onlyShown`, settings that are not shown elsewhere are in the background.
  function inBackground(trace) {
    if (trace.group === undefined || isShown(trace.group)) return trace;
    return { ...trace, line: { ...trace.line, color: "#7d8793", width: 1 }, opacity: 0.35 };
  }

  toosure.panelFigure = (panel, groups, { withLabel = true, yRange = null, onlyShown = false } = {}) => {
    const yaxis = { type: panel.log && state.scale === "log" ? "log" : "linear", zeroline: panel.key === "gap" };
    if (yRange) yaxis.range = yRange;
    const xaxis = { type: state.steps, lastTick: true, tight: true, title: { text: withLabel ? "step" : "" } };
    if (state.range) xaxis.range = state.steps === "log" ? state.range.map((step) => Math.log10(Math.max(step, 1e-9))) : state.range;
    const traces = toosure.tracesOf(panel, groups);
    const data = onlyShown ? traces.filter((trace) => !trace.fill).map(inBackground).sort((a, b) => a.opacity - b.opacity) : traces;
    return { data, layout: { showlegend: false, xaxis, yaxis, bottom: 40 } };
  };
  toosure.shownGroups = () => lines.groups.map((_, i) => i).filter(isShown);

  const isFirstOfRow = (plot) => {
    const figure = plot.closest("figure");
    return figure.previousElementSibling?.offsetTop !== figure.offsetTop;
  };
  toosure.linkedFigure = (plot) => {
    const panel = lines.byKey.get(plot.dataset.role);
    return panel && toosure.panelFigure(panel, toosure.shownGroups(), { withLabel: isFirstOfRow(plot) });
  };

  // ECE against sharpness: a dot where a run begins, a cross where it ends.
  toosure.phaseFigure = () => {
    const data = [];
    for (const [run, split, sharpness, ece, steps] of lines.phase) {
      const [id, name, group] = lines.runs[run];
      if (split !== state.phase || !isShown(group)) continue;
      const more = toosure.extra.get(`${id} ${split}/phase`) || { x: [], y: [], step: [] };
      const [x, y, step] = [[...array(sharpness), ...more.x], [...array(ece), ...more.y], [...array(steps), ...more.step]];
      const colour = toosure.colourOf(group);
      const said = { customdata: step, hovertemplate: `${name.replace(/%/g, "")}<br>step %{customdata:,}<br>sharpness %{x:.3g}, ECE %{y:.3g} points` };
      data.push({ x, y, line: { color: colour, width: 1.4 }, opacity: 0.75, ...said });
      const ends = (values) => [values[0], values.at(-1)];
      data.push({ x: ends(x), y: ends(y), mode: "markers", marker: { color: colour, size: [8, 10], symbol: ["circle", "x"] }, ...said, customdata: ends(step), cliponaxis: false });
    }
    return { data, layout: { showlegend: false, xaxis: { type: "log", title: { text: "Gauss-Newton sharpness" } }, yaxis: { type: "log", title: { text: "ECE, points" } } } };
  };

  // ---- crosshair ---------------------------------------------------------------------------
  const panels = toosure.linkedPlots = () => toosure.plots().filter((plot) => plot.classList.contains("linked"));
  const isLine = (trace) => !trace.fill && trace.split !== "edge";

  function mark(plot, step) {
    const { svg, xScales: { x }, yScales: { y } } = plot.chart;
    let cross = svg.querySelector(".cross");
    if (!cross) {
      cross = document.createElementNS(svg.namespaceURI, "path");
      cross.setAttribute("class", "cross");
      svg.append(cross);
    }
    const at = step === null ? NaN : x.at(step);
    const inside = at >= x.from - 1 && at <= x.to + 1;
    cross.setAttribute("d", inside && y ? `M${at},${y.from}V${y.to}` : "");
    return inside;
  }

  function readingOf(plot) {
    let reading = plot.querySelector(":scope > .reading");
    if (!reading) {
      reading = document.createElement("div");
      reading.className = "reading";
      plot.append(reading);
    }
    return reading;
  }

  function read(plot, step, isMain) {
    const reading = readingOf(plot);
    const found = plot.chart.data.filter(isLine).map((trace) => [trace, valueAt(trace, step)]).filter(([, value]) => Number.isFinite(value));
    reading.replaceChildren(...found.slice(0, MAX_READ).map(([trace, value]) => {
      const item = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.style.background = plot.chart.tint(trace.line.color);
      item.append(swatch, `${isMain ? `${lines.groups[trace.group].label}${trace.split === "train" ? ", training" : ""} ` : ""}${toosure.number(value)}`);
      return item;
    }));
    if (found.length > MAX_READ) reading.append(`and ${found.length - MAX_READ} more`);
    if (isMain) reading.prepend(`step ${toosure.number(Math.round(step), 9)}`);
    reading.classList.toggle("main", isMain);
    const { xScales: { x }, width } = plot.chart;
    const onRight = x.at(step) > width / 2;
    Object.assign(reading.style, onRight ? { left: `${x.from}px`, right: "auto" } : { right: "14px", left: "auto" });
    reading.setAttribute("aria-live", isMain ? "polite" : "off");
    reading.hidden = false;
  }

  let current = null;
  toosure.pointAt = (step, main) => {
    current = step;
    for (const plot of panels()) {
      if (!plot.chart?.xScales.x) continue;
      const inside = mark(plot, step);
      if (step === null || !inside) { const reading = plot.querySelector(".reading"); if (reading) reading.hidden = true; } else read(plot, step, plot === main);
    }
  };

  function nearestStep(plot, pixel) {
    const step = plot.chart.xScales.x.invert(pixel);
    const [first] = plot.chart.data.filter(isLine);
    if (!first) return step;
    let best = first.x[0];
    for (const each of first.x) if (Math.abs(each - step) < Math.abs(best - step)) best = each;
    return best;
  }

  let pending = null;
  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot.linked");
    if (plot?.drag) return stretch(plot, event);
    if (!plot?.chart?.xScales.x) { if (current !== null) toosure.pointAt(null); return undefined; }
    const pixel = event.clientX - plot.getBoundingClientRect().left;
    if (!pending) requestAnimationFrame(() => { const [on, at] = pending; pending = null; if (on.chart?.xScales.x) toosure.pointAt(nearestStep(on, at), on); });
    pending = [plot, pixel];
    return undefined;
  });

  // ---- zoom --------------------------------------------------------------------------------
  toosure.zoom = (range) => {
    state.range = range;
    panels().forEach(toosure.redraw);
  };

  function stretch(plot, event) {
    const { x, y } = { x: plot.chart.xScales.x, y: plot.chart.yScales.y };
    const [from, to] = [plot.drag.from, event.clientX - plot.getBoundingClientRect().left].sort((a, b) => a - b).map((pixel) => Math.min(Math.max(pixel, x.from), x.to));
    plot.drag.range = to - from > 6 ? [x.invert(from), x.invert(to)] : null;
    let box = plot.chart.svg.querySelector(".drag");
    if (!box) {
      box = document.createElementNS(plot.chart.svg.namespaceURI, "rect");
      box.setAttribute("class", "drag");
      plot.chart.svg.append(box);
    }
    for (const [key, value] of Object.entries({ x: from, y: y.to, width: to - from, height: y.from - y.to })) box.setAttribute(key, value);
  }
  document.addEventListener("pointerdown", (event) => {
    const plot = event.target.closest?.(".plot.linked");
    if (!plot?.chart?.xScales.x || event.pointerType !== "mouse" || event.button) return; // a finger scrolls
    plot.drag = { from: event.clientX - plot.getBoundingClientRect().left };
    plot.setPointerCapture(event.pointerId);
  });
  document.addEventListener("pointerup", (event) => {
    const plot = panels().find((each) => each.drag);
    if (!plot) return;
    const { range } = plot.drag;
    plot.drag = null;
    plot.chart.svg.querySelector(".drag")?.remove();
    if (range) toosure.zoom(range);
  });
  document.addEventListener("dblclick", (event) => { if (event.target.closest?.(".plot.linked")) toosure.zoom(null); });

  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot.linked");
    if (!plot?.chart?.xScales.x) return;
    const { low, high, at } = plot.chart.xScales.x;
    const steps = [...new Set(plot.chart.data.filter(isLine).flatMap((trace) => [...trace.x]))].filter((step) => step >= low && step <= high).sort((a, b) => a - b);
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move && steps.length) {
      const stride = Math.max(1, Math.round(steps.length / 60)) * (event.shiftKey ? 5 : 1);
      const place = current === null ? (move > 0 ? -1 : steps.length) : steps.findIndex((step) => at(step) >= at(current) - 0.01);
      toosure.pointAt(steps[Math.min(Math.max(place + move * stride, 0), steps.length - 1)], plot);
    } else if (event.key === "+" || event.key === "-") {
      const [middle, half] = [current ?? (low + high) / 2, ((high - low) / 2) * (event.key === "+" ? 0.5 : 2)];
      toosure.zoom([Math.max(middle - half, 0), middle + half]);
    } else if (event.key === "0" || event.key === "Escape") { toosure.zoom(null); toosure.pointAt(null); } else return;
    event.preventDefault();
  });
  document.addEventListener("focusout", (event) => { if (event.target.closest?.(".plot.linked")) toosure.pointAt(null); });
})();
