// Draws each figure in the colours of the page, sorts tables, and turns the page light for paper.
"use strict";
const toosure = window.toosure || (window.toosure = {});
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displayModeBar: false, doubleClick: "reset" };
  let onPaper = false;

  // A figure as it was written, in the colours of now; `arrange` of another script may change it.
  function drawingOf(plot) {
    const isDark = dark.matches && !onPaper;
    const drawing = JSON.parse(plot.nextElementSibling.textContent, (key, value) =>
      isDark && typeof value === "string" ? DARK[value.toLowerCase()] || value : value);
    return toosure.arrange ? toosure.arrange(plot, drawing) : drawing;
  }
  toosure.draw = (plot) => {
    const { data, layout } = drawingOf(plot);
    return Plotly.react(plot, data, layout, config);
  };
  toosure.plots = () => [...document.querySelectorAll(".plot")];
  toosure.drawAll = () => toosure.plots().map(toosure.draw);

  function sortBy(heading) {
    const table = heading.closest("table");
    const column = [...heading.parentNode.children].indexOf(heading);
    const down = heading.getAttribute("aria-sort") !== "descending";
    const key = (row) => row.children[column].dataset.value;
    const compare = (a, b) => {
      const [x, y] = [Number(key(a)), Number(key(b))];
      if (Number.isNaN(x) && Number.isNaN(y)) return key(b).localeCompare(key(a), undefined, { numeric: true });
      return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : y - x;
    };
    const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? compare(a, b) : compare(b, a)));
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest(".sortable th button");
    if (button) sortBy(button.closest("th"));
  });
  function paper(isPaper) {
    onPaper = isPaper;
    document.documentElement.classList.toggle("light", isPaper);
    toosure.drawAll();
    toosure.plots().forEach((plot) => Plotly.Plots.resize(plot));
  }
  dark.addEventListener("change", toosure.drawAll);
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
  toosure.ready?.();
  const drawn = toosure.drawAll();
  toosure.started?.();
  // <html data-ready> says that the figures are drawn and the buttons answer: tests wait for it.
  Promise.all(drawn).finally(() => { document.documentElement.dataset.ready = ""; });
})();
