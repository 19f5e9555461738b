// Numbers and axes of the figures: how values are printed, where they lie, which ticks are shown.
"use strict";
window.toosure = window.toosure || {};
(() => {
  const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
  const ruler = document.createElement("canvas").getContext("2d");

  // Names in figures are escaped for Plotly, which reads tags; here they are plain text.
  const entities = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };
  const plainText = toosure.plainText = (text) => String(text).replace(/&(lt|gt|amp);/g, (entity) => entities[entity]);

  const textWidth = (text, size = 12) => { ruler.font = `${size}px ${FONT}`; return ruler.measureText(text).width; };

  // ---- numbers -----------------------------------------------------------------------------
  toosure.number = (value, digits = 4) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size && (size >= 1e7 || size < 1e-3)) return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0+e/, "e").replace("e+", "e").replace(/-/g, "−");
    return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
  };

  function formatted(value, spec) {
    if (typeof value !== "number" || !spec) return String(value);
    const [, comma, digits, kind] = /^(,?)(?:\.(\d+))?([fg]?)$/.exec(spec) || [];
    if (kind === "f") return value.toLocaleString("en", { minimumFractionDigits: +digits, maximumFractionDigits: +digits, useGrouping: Boolean(comma) }).replace("-", "−");
    return kind === "g" ? toosure.number(value, +digits) : toosure.number(value, 15);
  }

  // What a point says: Plotly's template with the numbers of the point in it.
  toosure.sayPoint = (trace, i) => plainText((trace.hovertemplate || "%{x}, %{y}")
    .replace(/<extra>.*<\/extra>|<\/?b>/g, "").replace(/<br>/g, "\n")
    .replace(/%\{(\w+)(?:\[(\d+)\])?(?::([^}]+))?\}/g, (_, name, place, spec) => {
      const value = trace[name]?.[i];
      return formatted(place === undefined ? value : value?.[place], spec);
    }));

  // ---- axes --------------------------------------------------------------------------------
  const niceStep = (least) => {
    const unit = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((step) => step >= least * 0.999);
  };

  function multiples(low, high, step) {
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  function ticksOf(scale, axis, pixels, gap) {
    const { low, high, isLog } = scale;
    if (axis.ticktext) return axis.tickvals;
    const most = Math.max(2, Math.floor(pixels / gap));
    if (!isLog) {
      const step = typeof axis.dtick === "number" ? axis.dtick : niceStep((high - low) / most);
      return multiples(low, high, step);
    }
    const decades = Math.log10(high / low);
    if (decades < 0.8) return multiples(low, high, niceStep((high - low) / most)).filter((value) => value > 0);
    const exponents = multiples(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)), 1);
    const closest = (0.3 * pixels) / decades; // pixels from 1 to 2
    if (decades < 2.2 && closest > 0.45 * gap) return exponents.flatMap((k) => [1, 2, 5].map((factor) => factor * 10 ** k)).filter((value) => value >= low * 0.999 && value <= high * 1.001);
    const stride = Math.max(1, Math.ceil(decades / most));
    return exponents.filter((k) => k % stride === 0).map((k) => 10 ** k).filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }

  // A map from values to pixels; on a log axis only what is above 0 has a place.
  function scaleOf(axis, [low, high], from, to) {
    const isLog = axis.type === "log";
    const measure = isLog ? Math.log10 : (value) => value;
    const [a, b] = [measure(low), measure(high)];
    const at = (value) => from + ((measure(value) - a) / (b - a)) * (to - from);
    const invert = (pixel) => { const part = a + ((pixel - from) / (to - from)) * (b - a); return isLog ? 10 ** part : part; };
    return { at, invert, low, high, isLog, from, to };
  }

  function rangeOf(axis, parts, isBar) {
    const isLog = axis.type === "log";
    if (axis.range) return isLog ? axis.range.map((exponent) => 10 ** exponent) : axis.range;
    let [low, high] = [Infinity, -Infinity];
    for (const values of parts) for (const value of values) if (Number.isFinite(value) && (!isLog || value > 0)) { if (value < low) low = value; if (value > high) high = value; }
    if (isBar || axis.rangemode === "tozero") [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (low > high) return isLog ? [0.1, 1] : [0, 1];
    if (isLog) {
      const pad = Math.max((axis.tight ? 0 : 0.05) * Math.log10(high / low), low === high ? 0.3 : 0);
      return [low / 10 ** pad, high * 10 ** pad];
    }
    const pad = low === high ? Math.max(Math.abs(low) * 0.1, 1e-9) : (axis.tight ? 0 : 0.05) * (high - low);
    return [isBar && low === 0 ? 0 : low - pad, high + pad];
  }

  toosure.axes = { FONT, textWidth, ticksOf, scaleOf, rangeOf };
})();
