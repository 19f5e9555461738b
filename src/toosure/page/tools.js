// What every page offers: tables that sort, copy and become CSV; figures as files; explained words.
"use strict";
(() => {
  const closest = (event, selector) => event.target.closest?.(selector);

  // ---- tables ------------------------------------------------------------------------------
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

  // A cell as text: what it shows, the small line below in brackets.
  function textOf(cell) {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(".what, svg").forEach((each) => each.remove());
    const small = [...copy.querySelectorAll("small")].map((each) => { each.remove(); return each.textContent.trim(); });
    const text = copy.textContent.trim().replace(/\s+/g, " ");
    return [text, ...small.filter(Boolean).map((each) => `(${each})`)].join(" ").trim();
  }
  const rowsOf = (table) => [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(textOf));
  const csvCell = (text) => {
    const safe = /^[=+@\t]/.test(text) ? `'${text}` : text; // a spreadsheet must not compute a name
    return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  toosure.csv = (table) => rowsOf(table).map((row) => row.map(csvCell).join(",")).join("\r\n");

  function save(name, url) {
    const link = Object.assign(document.createElement("a"), { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }
  const saveText = (name, text, type) => save(name, URL.createObjectURL(new Blob([text], { type })));

  async function copy(text, button) {
    let copied = true;
    try { await navigator.clipboard.writeText(text); } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      copied = document.execCommand("copy"); // a page opened from a file has no clipboard
      area.remove();
    }
    const before = button.dataset.label || button.textContent;
    button.dataset.label = before;
    button.textContent = copied ? "copied" : "not allowed";
    setTimeout(() => { button.textContent = before; }, 1500);
  }
  const nameFor = (element, end) => `${(element.closest("section, header")?.id || "toosure")}${element.dataset.role ? `-${element.dataset.role}` : ""}.${end}`;

  document.addEventListener("click", async (event) => {
    const heading = closest(event, ".sortable th button");
    if (heading) return sortBy(heading.closest("th"));
    const button = closest(event, "button[data-do]");
    if (!button) return undefined;
    const table = button.closest(".sheet")?.querySelector("table");
    const plot = button.closest("figure")?.querySelector(".plot");
    if (plot && !plot.chart) toosure.draw(plot);
    switch (button.dataset.do) {
      case "copy-table": return copy(rowsOf(table).map((row) => row.join("\t")).join("\n"), button);
      case "csv": return saveText(nameFor(table, "csv"), toosure.csv(table), "text/csv");
      case "copy-text": return copy(button.dataset.text, button);
      case "svg": return saveText(nameFor(plot, "svg"), toosure.svgText(plot), "image/svg+xml");
      case "png": return save(nameFor(plot, "png"), await toosure.pngUrl(plot));
      default: return undefined;
    }
  });

  // ---- explained words ---------------------------------------------------------------------
  const bubble = document.createElement("div");
  bubble.id = "bubble";
  bubble.setAttribute("role", "tooltip");
  bubble.hidden = true;
  document.body.append(bubble);
  function explain(word) {
    bubble.textContent = word.dataset.tip;
    bubble.hidden = false;
    const box = word.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left), document.documentElement.clientWidth - bubble.offsetWidth - 8);
    const below = box.bottom + 6;
    bubble.style.left = `${left}px`;
    bubble.style.top = `${below + bubble.offsetHeight > innerHeight ? box.top - bubble.offsetHeight - 6 : below}px`;
  }
  const hide = () => { bubble.hidden = true; };
  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, (event) => { const word = closest(event, "[data-tip]"); if (word) explain(word); else hide(); });
  }
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // ---- contents and folding ----------------------------------------------------------------
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.querySelector(":scope > details")?.setAttribute("open", "");
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", openTarget);
  window.addEventListener("load", openTarget);

  function follow() {
    const links = [...document.querySelectorAll("#contents a")];
    const limit = innerHeight / 3;
    const above = links.filter((link) => (document.getElementById(link.hash.slice(1))?.getBoundingClientRect().top ?? Infinity) < limit);
    for (const link of links) if (link === above.at(-1)) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    const now = above.at(-1);
    const bar = now?.parentElement;
    if (now && bar.scrollWidth > bar.clientWidth) bar.scrollLeft = now.offsetLeft - bar.clientWidth / 3;
  }
  // What sticks below the contents must know how high they are: they may take two lines.
  const contents = document.getElementById("contents");
  if (contents) {
    new ResizeObserver(() => document.documentElement.style.setProperty("--contents", `${contents.offsetHeight}px`)).observe(contents);
  }
  let pending = false;
  document.addEventListener("scroll", () => {
    if (pending || !document.getElementById("contents")) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; follow(); });
  }, { passive: true });
})();
