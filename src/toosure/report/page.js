// Draws each figure in the colours of the page, sorts tables, and turns the page light for paper.
"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];

  function draw(isDark) {
    for (const plot of plots) {
      const source = plot.nextElementSibling.textContent;
      const drawing = JSON.parse(source, (key, value) =>
        isDark && typeof value === "string" ? DARK[value.toLowerCase()] || value : value);
      Plotly.react(plot, drawing.data, drawing.layout, { responsive: true, displayModeBar: false });
    }
  }

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

  for (const button of document.querySelectorAll(".sortable th button")) {
    button.addEventListener("click", () => sortBy(button.closest("th")));
  }
  function paper(isPaper) {
    document.documentElement.classList.toggle("light", isPaper);
    draw(!isPaper && dark.matches);
    plots.forEach((plot) => Plotly.Plots.resize(plot));
  }
  dark.addEventListener("change", () => draw(dark.matches));
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
  draw(dark.matches);
})();
