// Draws figures as SVG: the part of Plotly's figure format that toosure writes, in a few kilobytes.
// toosure.chart(element, {data, layout}) fills an element and leaves what it drew in element.chart.
"use strict";
(() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const { FONT, textWidth, ticksOf, scaleOf, rangeOf } = toosure.axes;
  const { plainText } = toosure;
  const DASHES = { dash: "6 4", dot: "1.5 3", solid: null };
  const TYPES = { i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };
  let numberOfCharts = 0;

  // Long arrays come as base64; what is already an array stays as it is.
  toosure.unpack = (values) => {
    if (!values || values.bdata === undefined) return values || [];
    const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
    return new TYPES[values.dtype](bytes.buffer);
  };

  const node = (name, attributes = {}, parent = null, text = null) => {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // ---- legend ------------------------------------------------------------------------------
  function brokenLines(text, width) {
    const lines = [""];
    for (const word of text.split(/(?<=[,: ])/)) {
      if (lines.at(-1) && textWidth(lines.at(-1) + word) > width) lines.push("");
      lines[lines.length - 1] += word;
    }
    return lines;
  }

  function placeLegend(items, width) {
    let [x, y, height] = [0, 0, 0];
    const placed = items.map((trace) => {
      const lines = brokenLines(plainText(trace.name), width - 30);
      const size = 26 + Math.max(...lines.map((line) => textWidth(line))) + 14;
      if (x && x + size > width) [x, y] = [0, y + height];
      if (!x) height = 0;
      height = Math.max(height, 17 * lines.length + 2);
      const place = { trace, lines, x, y };
      x += size;
      return place;
    });
    return { placed, height: items.length ? y + height + 6 : 0 };
  }

  // ---- marks -------------------------------------------------------------------------------
  const SYMBOLS = {
    circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
    diamond: (x, y, r) => `M${x},${y - 1.25 * r}L${x + 1.25 * r},${y}L${x},${y + 1.25 * r}L${x - 1.25 * r},${y}z`,
    ring: (x, y, r) => SYMBOLS.circle(x, y, r),
    square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    x: (x, y, r) => `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`,
  };
  const round = (value) => Math.round(10 * value) / 10;

  function linePath(trace, x, y) {
    let [path, isOpen] = ["", false];
    for (let i = 0; i < trace.x.length; i += 1) {
      const [px, py] = [x.at(trace.x[i]), trace.y[i] === null ? NaN : y.at(trace.y[i])];
      if (Number.isFinite(px) && Number.isFinite(py)) path += `${isOpen ? "L" : "M"}${round(px)},${round(py)}`;
      isOpen = Number.isFinite(px) && Number.isFinite(py);
    }
    return path;
  }

  function drawLine(trace, x, y, parent, tint) {
    if (trace.fill === "toself") {
      node("path", { d: `${linePath(trace, x, y)}z`, fill: tint(trace.fillcolor), "fill-opacity": trace.opacity ?? 0.15, stroke: "none" }, parent);
      return;
    }
    const { color, width = 2, dash = "solid" } = trace.line || {};
    node("path", { d: linePath(trace, x, y), fill: "none", stroke: tint(color), "stroke-width": width, "stroke-dasharray": DASHES[dash], "stroke-linejoin": "round", opacity: trace.opacity ?? null }, parent);
  }

  const each = (value, i, otherwise) => (value && typeof value === "object" ? value[i] : value) ?? otherwise;

  function drawMarkers(trace, x, y, parent, tint) {
    const marker = trace.marker || {};
    const bars = trace.error_y;
    for (let i = 0; i < trace.x.length; i += 1) {
      const [px, py] = [round(x.at(trace.x[i])), round(y.at(trace.y[i]))];
      if (!Number.isFinite(px) || !Number.isFinite(py)) continue;
      const colour = tint(each(marker.color, i, trace.line?.color || "#5c6672"));
      if (bars?.array) {
        const [top, bottom] = [y.at(trace.y[i] + bars.array[i]), y.at(trace.y[i] - (bars.arrayminus || bars.array)[i])].map(round);
        node("path", { d: `M${px},${top}V${bottom}M${px - 3},${top}h6M${px - 3},${bottom}h6`, stroke: colour, "stroke-width": 1.4, fill: "none" }, parent);
      }
      const symbol = each(marker.symbol, i, "circle");
      const path = (SYMBOLS[symbol] || SYMBOLS.circle)(px, py, round(each(marker.size, i, 6) / 2));
      const isOpen = symbol === "x" || symbol === "ring";
      node("path", isOpen ? { d: path, stroke: colour, "stroke-width": symbol === "x" ? 2.4 : 1.5, fill: "none" } : { d: path, fill: colour, "fill-opacity": each(marker.opacity, i, 1), stroke: tint("#ffffff"), "stroke-width": 0.6 }, parent);
    }
  }

  function drawBars(trace, x, y, parent, tint, below) {
    trace.bases = [];
    for (let i = 0; i < trace.x.length; i += 1) {
      const half = each(trace.width, i, 0.8) / 2;
      const base = below ? below.get(trace.x[i]) || 0 : 0;
      if (below) below.set(trace.x[i], base + trace.y[i]);
      trace.bases.push(base);
      const [left, right] = [x.at(trace.x[i] - half), x.at(trace.x[i] + half)];
      const [bottom, top] = [y.at(base), y.at(base + trace.y[i])];
      if (![left, right, bottom, top].every(Number.isFinite)) continue;
      node("rect", { x: round(Math.min(left, right)), y: round(Math.min(top, bottom)), width: round(Math.abs(right - left)), height: round(Math.abs(bottom - top)), fill: tint(each(trace.marker?.color, i, "#5c6672")) }, parent);
    }
  }

  // ---- a figure ----------------------------------------------------------------------------
  const unpacked = (trace) => {
    for (const key of ["x", "y", "customdata"]) if (trace[key]?.bdata !== undefined) trace[key] = reshaped(trace[key]);
    for (const key of ["size", "color"]) if (trace.marker?.[key]?.bdata !== undefined) trace.marker[key] = toosure.unpack(trace.marker[key]);
    for (const key of ["array", "arrayminus"]) if (trace.error_y?.[key]?.bdata !== undefined) trace.error_y[key] = toosure.unpack(trace.error_y[key]);
    if (trace.width?.bdata !== undefined) trace.width = toosure.unpack(trace.width);
    return trace;
  };

  function reshaped(packed) {
    const flat = toosure.unpack(packed);
    const wide = Number(String(packed.shape || "").split(",")[1]);
    if (!wide) return flat;
    return Array.from({ length: flat.length / wide }, (_, i) => [...flat.slice(i * wide, (i + 1) * wide)]);
  }

  const axisName = (short) => short.replace(/^([xy])/, "$1axis");

  // The range of an axis is that of all axes it matches, so that panels can be compared.
  function rangesOf(data, layout, letter) {
    const roots = {};
    const rootOf = (short) => layout[axisName(short)]?.matches || short;
    const names = new Set(data.map((trace) => trace[`${letter}axis`] || letter));
    for (const short of names) {
      const family = data.filter((trace) => rootOf(trace[`${letter}axis`] || letter) === rootOf(short));
      const axis = { ...layout[axisName(rootOf(short))], ...layout[axisName(short)] };
      const spread = family.filter((trace) => trace.type === "bar" && letter === "x").flatMap((trace) => [Array.from(trace.x, (v, i) => v - each(trace.width, i, 0.8) / 2), Array.from(trace.x, (v, i) => v + each(trace.width, i, 0.8) / 2)]);
      const whiskers = letter === "y" ? family.filter((trace) => trace.error_y?.array).flatMap(whiskerEnds) : [];
      const stacked = layout.barmode === "stack" && letter === "y" ? stackTops(family) : [];
      roots[short] = { axis, range: rangeOf(axis, [...family.map((trace) => trace[letter]), ...spread, ...whiskers, ...stacked], letter === "y" && family.some((trace) => trace.type === "bar")) };
    }
    return roots;
  }

  const whiskerEnds = ({ y, error_y: bars }) => [Array.from(y, (value, i) => value + bars.array[i]), Array.from(y, (value, i) => value - (bars.arrayminus || bars.array)[i])];

  function stackTops(traces) {
    const tops = new Map();
    for (const trace of traces) if (trace.type === "bar") trace.x.forEach((x, i) => tops.set(x, (tops.get(x) || 0) + trace.y[i]));
    return [[...tops.values()]];
  }

  toosure.chart = (element, figure, { tint = (colour) => colour } = {}) => {
    const { layout = {} } = figure;
    const data = figure.data.map(unpacked);
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (!width || !height) return null;
    const svg = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, "font-size": 12, class: "chart", "aria-hidden": "true" });
    const items = layout.showlegend === false ? [] : data.filter((trace) => trace.name && trace.showlegend !== false);
    const legend = placeLegend(layout.showlegend === undefined && items.length < 2 ? [] : items, width);

    const titled = (letter) => Object.keys(layout).some((key) => key.startsWith(`${letter}axis`) && layout[key].title?.text);
    const hasTitles = (layout.annotations || []).length > 0;
    const [top, bottom] = [8 + legend.height + (hasTitles ? 20 : 0), height - (layout.bottom || (titled("x") ? 40 : 24))];
    const [xs, ys] = [rangesOf(data, layout, "x"), rangesOf(data, layout, "y")];

    // Heights are known first, then the labels of the upright axes, then the widths.
    const place = (domain, from, to) => (domain || [0, 1]).map((part) => from + part * (to - from));
    const yScales = {}, yTicks = {};
    let labelled = 0;
    for (const [short, { axis, range }] of Object.entries(ys)) {
      const [from, to] = place(axis.domain, bottom, top);
      yScales[short] = scaleOf(axis, range, from, to);
      yTicks[short] = ticksOf(yScales[short], axis, from - to, 38);
      if (axis.showticklabels !== false) labelled = Math.max(labelled, ...yTicks[short].map((tick) => textWidth(toosure.number(tick, 6))));
    }
    const left = Math.ceil(labelled) + 8 + (titled("y") ? 18 : 0);
    const right = width - 14;
    const xScales = {}, xTicks = {};
    for (const [short, { axis, range }] of Object.entries(xs)) {
      const [from, to] = place(axis.domain, left, right);
      xScales[short] = scaleOf(axis, range, from, to);
      xTicks[short] = withLast(ticksOf(xScales[short], axis, to - from, 70), axis, xScales[short]);
    }

    const model = { svg, data, layout, xScales, yScales, width, height, top, bottom, left, right, tint };
    drawFrame(model, { xs, ys, xTicks, yTicks });
    drawTraces(model);
    drawLegend(model, legend);
    element.querySelector(":scope > svg.chart")?.remove();
    element.prepend(svg);
    element.chart = model;
    return model;
  };

  // An axis of steps ends with a label: the last step that was taken.
  function withLast(ticks, axis, scale) {
    if (!axis.lastTick) return ticks;
    const apart = (tick) => Math.abs(scale.at(tick) - scale.at(scale.high)) > 8 + textWidth(toosure.number(tick, 7)) / 2 + textWidth(toosure.number(scale.high, 7)) / 2;
    return [...ticks.filter(apart), scale.high];
  }

  function drawFrame({ svg, layout, xScales, yScales, tint, height, width, top, bottom, left, right }, { xs, ys, xTicks, yTicks }) {
    const [line, quiet] = [tint("#dbe0e6"), tint("#5c6672")];
    const grid = node("g", { stroke: line, "stroke-width": 1 }, svg);
    const labels = node("g", { fill: quiet }, svg);
    const cellOf = (short, own, others) => others[(own[short].axis.anchor || "").replace("axis", "")] || Object.values(others)[0];
    for (const [short, scale] of Object.entries(yScales)) {
      const x = cellOf(short, ys, xScales);
      for (const tick of yTicks[short]) {
        const y = round(scale.at(tick));
        const isZero = ys[short].axis.zeroline && tick === 0;
        node("path", { d: `M${x.from},${y}H${x.to}`, stroke: isZero ? quiet : null, "stroke-width": isZero ? 1.4 : null }, grid);
        if (ys[short].axis.showticklabels !== false) node("text", { x: round(x.from) - 6, y: y + 4, "text-anchor": "end" }, labels, toosure.number(tick, 6));
      }
      const title = ys[short].axis.title?.text;
      if (title) {
        const middle = (scale.from + scale.to) / 2;
        node("text", { x: 0, y: 0, transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, labels, plainText(title));
      }
    }
    for (const [short, scale] of Object.entries(xScales)) {
      const y = cellOf(short, xs, yScales);
      const base = y ? y.from : bottom;
      for (const tick of xTicks[short]) {
        const x = round(scale.at(tick));
        const isZero = xs[short].axis.zeroline && tick === 0;
        node("path", { d: `M${x},${base}V${y ? y.to : top}`, stroke: isZero ? quiet : null, "stroke-width": isZero ? 1.4 : null }, grid);
        const text = xs[short].axis.ticktext?.[xs[short].axis.tickvals.indexOf(tick)] ?? toosure.number(tick, 7);
        const inside = Math.min(Math.max(x, textWidth(text) / 2), width - textWidth(text) / 2);
        if (xs[short].axis.showticklabels !== false) node("text", { x: round(inside), y: base + 16, "text-anchor": "middle" }, labels, text);
      }
      const title = xs[short].axis.title?.text;
      if (title) node("text", { x: (scale.from + scale.to) / 2, y: base + 34, "text-anchor": "middle" }, labels, plainText(title));
    }
    for (const note of layout.annotations || []) {
      const [x, y] = [left + (note.x ?? 0) * (right - left), bottom + (note.y ?? 0) * (top - bottom)];
      const anchor = { left: "start", right: "end" }[note.xanchor] || "middle";
      node("text", { x, y: y - 6, "text-anchor": anchor, fill: tint("#1d2229") }, svg, plainText(note.text));
    }
    for (const shape of layout.shapes || []) {
      const scale = xScales[(shape.xref || "x").split(" ")[0]] || Object.values(xScales)[0];
      if (scale && shape.x0 === shape.x1) node("path", { d: `M${scale.at(shape.x0)},${top}V${bottom}`, stroke: tint(shape.line?.color || "#5c6672"), "stroke-dasharray": DASHES[shape.line?.dash] }, svg);
    }
  }

  function drawTraces({ svg, data, layout, xScales, yScales, tint }) {
    const name = `clip${numberOfCharts += 1}-`;
    const clips = new Map();
    const below = new Map();
    for (const trace of data) {
      const [xName, yName] = [trace.xaxis || "x", trace.yaxis || "y"];
      const [x, y] = [xScales[xName], yScales[yName]];
      const id = `${name}${xName}${yName}`;
      if (!clips.has(id)) {
        const clip = node("clipPath", { id }, svg);
        node("rect", { x: x.from - 2, y: y.to - 2, width: x.to - x.from + 4, height: y.from - y.to + 4 }, clip);
        clips.set(id, node("g", { "clip-path": `url(#${id})` }, svg));
      }
      const parent = clips.get(id);
      if (trace.type === "bar") {
        if (!below.has(id)) below.set(id, layout.barmode === "stack" ? new Map() : null);
        drawBars(trace, x, y, parent, tint, below.get(id));
        continue;
      }
      const mode = trace.mode || "lines";
      if (mode.includes("lines")) drawLine(trace, x, y, parent, tint);
      if (mode.includes("markers")) drawMarkers(trace, x, y, trace.cliponaxis === false ? svg : parent, tint);
    }
  }

  function drawLegend({ svg, tint }, { placed }) {
    for (const { trace, lines, x, y } of placed) {
      const group = node("g", { transform: `translate(${x} ${y})` }, svg);
      const colour = tint(trace.line?.color || each(trace.marker?.color, 0, "#5c6672"));
      if (trace.type === "bar") node("rect", { x: 3, y: 3, width: 12, height: 12, fill: colour }, group);
      else if ((trace.mode || "lines").includes("lines")) node("path", { d: "M0,9H20", stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[trace.line?.dash] }, group);
      else node("path", { d: (SYMBOLS[each(trace.marker?.symbol, 0, "circle")] || SYMBOLS.circle)(10, 9, 5), fill: colour }, group);
      lines.forEach((line, i) => node("text", { x: 26, y: 13 + 17 * i, fill: tint("#1d2229") }, group, line));
    }
  }

  // ---- pictures ----------------------------------------------------------------------------
  // A figure as a file of its own, on the paper of the page.
  toosure.svgText = (element) => {
    const copy = element.chart.svg.cloneNode(true);
    copy.setAttribute("xmlns", SPACE);
    copy.removeAttribute("aria-hidden");
    const paper = node("rect", { width: "100%", height: "100%", fill: element.chart.tint("#ffffff") });
    copy.prepend(paper);
    return new XMLSerializer().serializeToString(copy);
  };

  toosure.pngUrl = async (element, scale = 2) => {
    const { width, height } = element.chart;
    const picture = new Image(width, height);
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(toosure.svgText(element))}`;
    await picture.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: scale * width, height: scale * height });
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.drawImage(picture, 0, 0, width, height);
    return canvas.toDataURL("image/png");
  };
})();
