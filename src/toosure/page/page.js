// Every page: draws figures, those in sight first, in the colours and the width of screen or paper.
"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const PAPER = "#14171b"; // of the dark page
  let onPaper = false;
  const tint = (colour) => {
    if (!dark.matches || onPaper) return colour;
    return colour === "#ffffff" ? PAPER : DARK[String(colour).toLowerCase()] || colour;
  };

  // A figure stands in the script after its element; `figureOf` of another script may make it.
  function figureOf(plot) {
    if (!plot.figure) {
      const source = plot.nextElementSibling;
      plot.figure = source?.type === "application/json" ? JSON.parse(source.textContent) : null;
    }
    return toosure.figureOf?.(plot) || plot.figure;
  }

  toosure.draw = (plot) => {
    plot.stale = false;
    const figure = figureOf(plot);
    if (figure && toosure.chart(plot, figure, { tint })) toosure.drawn?.(plot);
  };
  toosure.plots = () => [...document.querySelectorAll(".plot")];
  toosure.drawAll = () => toosure.plots().forEach(toosure.draw);

  // What is in sight is drawn at once, the rest when there is time. Later, what is out of sight is
  // drawn again when it comes into sight, and one figure at a time.
  const seen = new WeakSet();
  const waiting = new Set();
  const drawNext = () => {
    const [plot] = waiting;
    if (!plot) return;
    waiting.delete(plot);
    if (plot.isConnected) toosure.draw(plot);
    if (waiting.size) setTimeout(drawNext);
    else document.documentElement.dataset.ready = ""; // tests wait for it
  };
  toosure.redraw = (plot) => {
    plot.stale = true;
    if (!seen.has(plot)) return;
    if (!waiting.size) setTimeout(drawNext);
    waiting.add(plot);
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target); else seen.delete(target);
      if (isIntersecting && target.stale !== false) toosure.redraw(target);
    }
  }, { rootMargin: "300px" });
  const size = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const { width, height } = target.chart || {};
      if (target.chart && (width !== target.clientWidth || height !== target.clientHeight)) toosure.redraw(target);
    }
  });
  const isInWindow = (plot) => {
    const { top, bottom } = plot.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  const whenIdle = window.requestIdleCallback || ((call) => setTimeout(call, 100));
  const rest = new Set();
  const drawRest = () => {
    const [plot] = rest;
    rest.delete(plot);
    if (plot.isConnected && !plot.chart) toosure.draw(plot);
    if (rest.size) whenIdle(drawRest);
  };
  toosure.watchPlots = () => {
    const fresh = toosure.plots().filter((plot) => !plot.watched);
    for (const plot of fresh) {
      plot.watched = true;
      sight.observe(plot);
      size.observe(plot);
    }
    fresh.filter(isInWindow).forEach(toosure.draw);
    if (fresh.length && !rest.size) whenIdle(drawRest);
    fresh.forEach((plot) => rest.add(plot));
  };

  // A browser asks for paper before it lays the page out: figures are drawn at the width of a sheet.
  function paper(isPaper) {
    onPaper = isPaper;
    document.documentElement.classList.toggle("paper", isPaper);
    if (isPaper) toosure.drawAll();
    else toosure.plots().forEach(toosure.redraw);
  }
  dark.addEventListener("change", () => toosure.plots().forEach(toosure.redraw));
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
  toosure.ready?.();
  toosure.watchPlots();
  toosure.started?.();
  requestAnimationFrame(() => setTimeout(() => { if (!waiting.size) document.documentElement.dataset.ready = ""; }, 0));
})();
