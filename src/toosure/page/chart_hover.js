// What a figure says under the pointer or the arrow keys: single figures name their nearest point.
// Linked panels have a crosshair instead (panels.js).
"use strict";
(() => {
  const REACH = 40; // pixels from a point at which it still answers

  function tipOf(plot) {
    let tip = plot.querySelector(":scope > .tip");
    if (!tip) {
      tip = document.createElement("div");
      tip.className = "tip";
      tip.setAttribute("role", "status");
      plot.append(tip);
    }
    return tip;
  }

  toosure.hideTip = (plot) => { const tip = plot.querySelector(":scope > .tip"); if (tip) tip.hidden = true; };

  toosure.showTip = (plot, x, y, text) => {
    const tip = tipOf(plot);
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(Math.max(0, x + 12), plot.clientWidth - tip.offsetWidth);
    const above = y - tip.offsetHeight - 12;
    tip.style.transform = `translate(${Math.max(0, left)}px, ${above < 0 ? y + 14 : above}px)`;
  };

  // Every point that has something to say, with its place in pixels.
  toosure.pointsOf = ({ data, xScales, yScales }) => data.flatMap((trace) => {
    if (trace.hoverinfo === "skip") return [];
    const [x, y] = [xScales[trace.xaxis || "x"], yScales[trace.yaxis || "y"]];
    return Array.from(trace.x, (value, i) => ({
      trace, i, isBar: trace.type === "bar",
      x: x.at(value), y: y.at(trace.type === "bar" ? trace.bases[i] + trace.y[i] : trace.y[i]),
    })).filter((point) => Number.isFinite(point.x) && Number.isFinite(point.y));
  });

  const distance = (point, x, y) => point.isBar ? Math.abs(point.x - x) + (y < point.y - 4 ? REACH : 0) : Math.hypot(point.x - x, point.y - y);

  function say(plot, point) {
    if (!point) return toosure.hideTip(plot);
    return toosure.showTip(plot, point.x, point.y, toosure.sayPoint(point.trace, point.i));
  }

  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot:not(.linked)");
    if (!plot?.chart) return;
    const box = plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const near = toosure.pointsOf(plot.chart).map((point) => [distance(point, x, y), point]).filter(([far]) => far < REACH);
    say(plot, near.length ? near.reduce((a, b) => (a[0] <= b[0] ? a : b))[1] : null);
  });
  document.addEventListener("pointerout", (event) => {
    const plot = event.target.closest?.(".plot:not(.linked)");
    if (plot && !plot.contains(event.relatedTarget)) toosure.hideTip(plot);
  });
  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot:not(.linked)");
    if (!plot?.chart) return;
    if (event.key === "Escape") return toosure.hideTip(plot);
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const points = toosure.pointsOf(plot.chart).sort((a, b) => a.x - b.x || a.y - b.y);
    plot.place = Math.min(Math.max((plot.place ?? (move > 0 ? -1 : points.length)) + move, 0), points.length - 1);
    say(plot, points[plot.place]);
  });
  document.addEventListener("focusout", (event) => { const plot = event.target.closest?.(".plot:not(.linked)"); if (plot) toosure.hideTip(plot); });
})();
