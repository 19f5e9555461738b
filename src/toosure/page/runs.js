// Pages of runs: which settings are shown, the filter, the reference, accuracy against ECE.
"use strict";
(() => {
  const BEST = 6;
  const find = (id) => document.getElementById(id);
  const { state, shown } = toosure;
  let matches = () => true; // whether a setting passes the filter
  const references = new Map(); // those that were chosen, by data set

  toosure.figureOf = (plot) => {
    const role = plot.dataset.role;
    if (plot.classList.contains("linked")) return toosure.linkedFigure(plot);
    if (role === "phase") return toosure.phaseFigure();
    if (role === "tradeoff") return tradeoffFigure();
    if (plot.multiple) return toosure.panelFigure(...plot.multiple());
    return toosure.momentFigure?.(plot) || null;
  };
  const lineRoles = (plot) => plot.classList.contains("linked") || plot.multiple || ["phase", "tradeoff"].includes(plot.dataset.role);
  toosure.linePlots = () => toosure.plots().filter(lineRoles);
  const redrawLines = () => toosure.linePlots().forEach(toosure.redraw);

  // ---- which settings are shown ------------------------------------------------------------
  const chips = () => [...document.querySelectorAll(".chip")];
  function press(group, value) {
    for (const button of group.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  }
  toosure.press = press;

  function show(labels) {
    shown.clear();
    labels.forEach((label) => shown.add(label));
    markChips();
    redrawLines();
  }
  function markChips() {
    toosure.assignColours();
    const places = new Map(toosure.lines().groups.map((group, i) => [group.label, toosure.placeOf(i)]));
    for (const chip of chips()) {
      chip.setAttribute("aria-pressed", String(shown.has(chip.dataset.label)));
      chip.hidden = !matches(Number(chip.dataset.group));
      chip.querySelector("i").className = `c${places.get(chip.dataset.label)}`;
    }
    for (const swatch of document.querySelectorAll("tr[data-label] .swatch")) {
      const { label } = swatch.closest("tr").dataset;
      swatch.className = shown.has(label) ? `swatch c${places.get(label)}` : "swatch unseen"; // a colour is that of a line
    }
    const more = find("more-settings");
    if (more) more.hidden = chips().every((chip) => chip.hidden || shown.has(chip.dataset.label));
  }
  function unfold(more) {
    const isOpen = more.getAttribute("aria-expanded") !== "true";
    more.setAttribute("aria-expanded", String(isOpen));
    more.textContent = isOpen ? "fewer" : "more settings";
    document.querySelector(".legend").classList.toggle("few", !isOpen);
  }
  const passing = () => toosure.lines().groups.map((group, i) => [group, i]).filter(([, i]) => matches(i));
  const best = () => passing().slice(0, BEST).map(([group]) => group.label);

  document.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    const choice = event.target.closest("[data-choice] button");
    const set = event.target.closest("[data-set]");
    const more = event.target.closest("#more-settings");
    if (more) unfold(more);
    if (chip) {
      const { label } = chip.dataset;
      if (shown.has(label)) shown.delete(label); else shown.add(label);
      markChips();
      redrawLines();
    } else if (choice) {
      const group = choice.closest("[data-choice]");
      state[group.dataset.choice] = choice.dataset.value;
      if (group.dataset.choice === "steps") state.range = null;
      press(group, choice.dataset.value);
      redrawLines();
    } else if (set) {
      show({ best, all: () => passing().map(([group]) => group.label), none: () => [] }[set.dataset.set]());
    }
  });

  // ---- the filter: words and settings, all of which must hold ------------------------------
  const SIGNS = {
    "=": (a, b) => (Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? a.includes(b) : Number(a) === Number(b)),
    "<": (a, b) => Number(a) < Number(b), ">": (a, b) => Number(a) > Number(b),
    "<=": (a, b) => Number(a) <= Number(b), ">=": (a, b) => Number(a) >= Number(b), "!=": (a, b) => !SIGNS["="](a, b),
  };
  toosure.parseFilter = (text) => {
    const parts = text.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
      const [, key, sign, value] = /^([\w.]+)(<=|>=|!=|=|<|>)(.+)$/.exec(word) || [];
      if (!sign) return (group) => group.label.toLowerCase().includes(word) || Object.values(group.settings).some((each) => each.toLowerCase().includes(word));
      return (group) => {
        const given = group.settings[key] ?? group.numbers[key]?.toString();
        return given !== undefined && SIGNS[sign](given.toLowerCase(), value);
      };
    });
    return (group) => parts.every((holds) => holds(group));
  };

  function applyFilter() {
    const box = find("sought");
    if (!box) return;
    const { groups } = toosure.lines();
    const holds = toosure.parseFilter(box.value);
    const passed = new Set(groups.filter(holds).map((group) => group.label));
    matches = (i) => passed.has(groups[i].label);
    for (const row of document.querySelectorAll("tr[data-label]")) row.hidden = !passed.has(row.dataset.label);
    find("sought-count").textContent = box.value.trim() ? `${passed.size} of ${groups.length}` : "";
  }
  document.addEventListener("input", (event) => {
    if (event.target.id !== "sought") return;
    applyFilter();
    show(best());
  });

  // ---- accuracy against ECE ----------------------------------------------------------------
  function tradeoffFigure() {
    const { groups } = toosure.lines();
    const known = groups.map((group, i) => ({ ...group, i })).filter((group) => group.ranked && group.numbers.ece !== undefined && group.numbers.accuracy !== undefined && matches(group.i));
    const fronts = new Map();  // by data set: numbers of different data cannot be compared
    for (const group of [...known].sort((a, b) => b.numbers.accuracy - a.numbers.accuracy || a.numbers.ece - b.numbers.ece)) {
      const front = fronts.get(group.data) ?? [];
      if (!front.length || group.numbers.ece < front.at(-1).numbers.ece) fronts.set(group.data, [...front, group]);
    }
    const is = (wanted) => known.filter((group) => shown.has(group.label) === wanted);
    const marks = (some, isBright) => ({
      type: "scatter", mode: "markers", cliponaxis: false, name: isBright ? some[0].label : undefined,
      x: some.map((group) => group.numbers.accuracy), y: some.map((group) => group.numbers.ece),
      customdata: some.map((group) => [group.label, group.numbers.nll ?? NaN]),
      marker: { color: some.map((group) => (isBright ? toosure.colourOf(group.i) : "#7d8793")), size: isBright ? 11 : 7, opacity: isBright ? 1 : 0.6 },
      hovertemplate: "%{customdata[0]}<br>accuracy %{x:.2f} %<br>ECE %{y:.2f} points<br>NLL %{customdata[1]:.3f}",
    });
    const lines = [...fronts.values()].map((front, i) => ({ type: "scatter", mode: "lines+markers", hoverinfo: "skip", name: i ? undefined : "Pareto front", cliponaxis: false, marker: { symbol: "ring", size: 17, color: "#5c6672" }, x: front.map((group) => group.numbers.accuracy), y: front.map((group) => group.numbers.ece), line: { color: "#5c6672", width: 1.5, dash: "dash" } }));
    const bright = is(true);
    return { data: [...lines, marks(is(false), false), ...bright.map((group) => marks([group], true))], layout: { showlegend: bright.length <= 2 * BEST, xaxis: { title: { text: "accuracy, %" } }, yaxis: { title: { text: "ECE, points" } } } };
  }

  // ---- small multiples ---------------------------------------------------------------------
  const number = (text) => (Number.isNaN(Number(text)) ? Infinity : Number(text));
  function drawMultiples() {
    const box = find("multiples-panels");
    if (!box) return;
    const { groups, byKey } = toosure.lines();
    const setting = find("multiples-setting").value;
    const panel = byKey.get(find("multiples-quantity").value);
    const values = [...new Set(groups.map((group) => group.settings[setting] ?? "none"))].sort((a, b) => number(a) - number(b) || a.localeCompare(b));
    const members = (value) => groups.map((_, i) => i).filter((i) => (groups[i].settings[setting] ?? "none") === value && matches(i));
    box.replaceChildren(...values.map((value) => {
      const figure = document.createElement("figure");
      const title = Object.assign(document.createElement("h3"), { textContent: `${setting} = ${value}` });
      const plot = Object.assign(document.createElement("div"), { className: "plot", tabIndex: 0 });
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${panel.heading} where ${setting} is ${value}`);
      plot.multiple = () => [panel, members(value), { yRange: rangeOf(panel, values.flatMap(members)), onlyShown: true }];
      const tools = document.createElement("p");
      tools.className = "tools";
      tools.append("save as", ...["svg", "png"].map((kind) => {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: kind.toUpperCase() });
        button.dataset.do = kind;
        return button;
      }));
      figure.append(title, plot, tools);
      return figure;
    }));
    toosure.watchPlots();
  }
  function rangeOf(panel, members) {
    const isLog = panel.log && state.scale === "log";
    let [low, high] = [Infinity, -Infinity];
    for (const { y, split } of toosure.tracesOf(panel, members)) if (split !== "edge") for (const value of y) if (Number.isFinite(value) && (!isLog || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low >= high) return null;
    return isLog ? [Math.log10(low) - 0.05, Math.log10(high) + 0.05] : [low - 0.04 * (high - low), high + 0.04 * (high - low)];
  }
  document.addEventListener("change", (event) => { if (event.target.closest("#multiples")) drawMultiples(); });

  // ---- differences against any reference ---------------------------------------------------
  let blocks = []; // of each data set: its element and its scores
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const variance = (values) => { const middle = mean(values); return values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1); };
  const meanHalf = (values, { student }) => (values.length < 2 ? 0 : student[values.length - 2] * Math.sqrt(variance(values) / values.length));
  // As `toosure.page.paired` takes them: the same resampled examples, and seed by seed where both have the same.
  toosure.differences = (label, other) => {
    const { scores } = blocks.find((block) => block.scores.settings[label]);
    const [a, b] = [scores.settings[label], scores.settings[other]];
    const [x, y] = [a, b].map((each) => (each.unpacked ??= toosure.unpack(scores.arrays[each.samples])));
    const count = x.length / scores.quantities.length;
    const isPaired = String(a.seeds) === String(b.seeds);
    return scores.quantities.map((_, k) => {
      const [ours, theirs] = [a, b].map((each) => each.by_seed.map((row) => row[k]));
      const gaps = Array.from({ length: count }, (__, i) => x[k * count + i] - y[k * count + i]);
      const seeds = isPaired ? meanHalf(ours.map((value, i) => value - theirs[i]), scores) : Math.hypot(meanHalf(ours, scores), meanHalf(theirs, scores));
      const examples = 1.959964 * Math.sqrt(variance(gaps));
      return { value: mean(ours) - mean(theirs), half: Math.hypot(examples, seeds), isOverSeeds: seeds > examples };
    });
  };
  // As `toosure.page.number_text` prints them.
  function printed(size, digits) {
    if (size >= 1e9) return size.toExponential(2).replace(/\+(\d)$/, "+0$1");
    return size >= 1e4 ? Math.round(size).toLocaleString("en") : size.toFixed(digits);
  }
  function signed(value, digits) {
    const text = printed(Math.abs(value), digits);
    return /[1-9]/.test(text) ? `${value > 0 ? "+" : "−"}${text}` : text;
  }
  function intervalText({ value, half }, { scale, digits, limit }) {
    const [low, high] = [value - half, value + half];
    if (limit === null || (low >= -limit && high <= limit)) return `± ${printed(scale * half, digits)}`;
    return `${signed(scale * Math.max(low, -limit), digits)} to ${signed(scale * Math.min(high, limit), digits)}`;
  }
  function mostlyOver({ isOverSeeds }, scores, label, other) {
    const several = [label, other].map((each) => scores.settings[each].seeds.length).filter((count) => count > 1);
    return isOverSeeds ? `${Math.min(...several)} seeds` : `${scores.n.toLocaleString("en")} examples`;
  }
  function fillDifferences({ element, scores }) {
    const select = element.querySelector(".reference");
    const chosen = references.get(element.dataset.of);
    if (chosen !== undefined && scores.settings[chosen]) select.value = chosen;
    for (const row of element.querySelectorAll("tbody tr")) {
      const isReference = row.dataset.label === select.value;
      row.cells[0].querySelector("small").textContent = isReference ? "the reference" : "";
      const differences = toosure.differences(row.dataset.label, select.value);
      const over = row.cells[differences.length + 1];
      over.textContent = isReference ? "–" : mostlyOver(differences[scores.decides], scores, row.dataset.label, select.value);
      over.dataset.value = over.textContent;
      differences.forEach(({ value, half }, k) => {
        const { scale, digits, lower } = scores.quantities[k];
        const cell = row.cells[k + 1];
        const text = document.createElement("span");
        const isChance = isReference || !(Math.abs(value) > half);
        text.className = isChance ? "chance" : (value < 0) === lower ? "gain" : "loss";
        text.textContent = isReference ? "–" : signed(scale * value, digits);
        if (!isReference) text.append(Object.assign(document.createElement("small"), { textContent: intervalText({ value, half }, scores.quantities[k]) }));
        cell.dataset.value = String(isReference ? 0 : scale * value);
        cell.replaceChildren(text);
      });
    }
  }
  document.addEventListener("change", (event) => {
    const block = blocks.find(({ element }) => element.contains(event.target));
    if (!block || !event.target.matches(".reference")) return;
    references.set(block.element.dataset.of, event.target.value);
    fillDifferences(block);
  });

  // Called when a live page put new tables in the place of old ones.
  toosure.tablesChanged = () => {
    blocks = [...document.querySelectorAll(".differences")].map((element) => ({ element, scores: JSON.parse(element.querySelector(".scores").textContent) }));
    for (const block of blocks) if (references.has(block.element.dataset.of)) fillDifferences(block);
    applyFilter();
    markChips();
  };

  // Called with the page, and again when a live page is written anew.
  toosure.ready = () => {
    toosure.readLines();
    const isFirst = !shown.size;
    const labels = new Set(toosure.lines().groups.map((group) => group.label));
    for (const label of shown) if (!labels.has(label)) shown.delete(label);
    if (isFirst || !shown.size) best().forEach((label) => shown.add(label));
    for (const group of document.querySelectorAll("[data-choice]")) press(group, state[group.dataset.choice]);
    toosure.tablesChanged();
    toosure.readyMoments?.();
    drawMultiples();
  };
  toosure.started = () => toosure.follow?.();
})();
