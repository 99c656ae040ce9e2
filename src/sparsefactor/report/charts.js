"use strict";
// Small helpers and the two kinds of picture. Text reaches the page through textContent only.
const SVG = "http://www.w3.org/2000/svg";
function el(name, attributes, ...children) {
  const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "text") node.textContent = value; else if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}
function fmt(x, decimals) {
  if (typeof x !== "number") return x == null ? "" : String(x);
  if (decimals != null) return x.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return x.toLocaleString("en");
  return Math.abs(x) >= 1e5 ? x.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(x.toPrecision(4)));
}
function bytes(text) { return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)); }
function floats(text) { return new Float32Array(bytes(text).buffer); }
const tip = el("div", { class: "tip", role: "status" });
function showTip(event, text) {
  tip.textContent = text; tip.style.display = text ? "block" : "none";
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}
function ticks(low, high, log) {
  const out = [];
  if (log) {
    for (let e = Math.ceil(low); e <= Math.floor(high); e++) out.push(e);
    if (out.length >= 2) return out;
  }
  const step0 = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(step0)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= step0);
  const loose = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-12; v += step) loose.push(v);
  return loose;
}
function lineChart(panel, styles, hidden) {
  const W = 420, H = 270, left = 48, right = 8, top = 8, bottom = 34;
  const whole = { x: [Infinity, -Infinity], y: [Infinity, -Infinity] };
  const log = (v) => Math.log10(Math.max(v, 1e-9));
  const grow = (range, v) => { if (Number.isFinite(v)) { range[0] = Math.min(range[0], v); range[1] = Math.max(range[1], v); } };
  for (const line of panel.lines) { line.x.forEach((v) => grow(whole.x, log(v))); line.y.forEach((v) => grow(whole.y, v)); }
  for (const value of Object.values(panel.levels || {})) grow(whole.y, value);
  const pad = (whole.y[1] - whole.y[0]) * 0.05 || 0.1; whole.y[0] -= pad; whole.y[1] += pad;
  if (whole.x[0] === whole.x[1]) { whole.x[0] -= 0.5; whole.x[1] += 0.5; }
  let view = whole;
  const svg = el("svg:svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: 0, "aria-label": `${panel.title}, ${panel.ylabel}: ${panel.lines.length} lines over seconds of computation; plus, minus and arrows zoom and move` });
  const X = (v) => left + (v - view.x[0]) / (view.x[1] - view.x[0]) * (W - left - right);
  const Y = (v) => H - bottom - (v - view.y[0]) / (view.y[1] - view.y[0]) * (H - top - bottom);
  const clip = "clip" + Math.random().toString(36).slice(2);
  function draw() {
    svg.replaceChildren(el("svg:clipPath", { id: clip }, el("svg:rect", { x: left, y: top, width: W - left - right, height: H - top - bottom })));
    for (const t of ticks(view.x[0], view.x[1], true)) {
      svg.append(el("svg:line", { class: "axis", x1: X(t), x2: X(t), y1: top, y2: H - bottom }),
        el("svg:text", { x: X(t), y: H - bottom + 14, "text-anchor": "middle", text: fmt(Math.pow(10, t)) }));
    }
    for (const t of ticks(view.y[0], view.y[1], false)) {
      svg.append(el("svg:line", { class: "axis", x1: left, x2: W - right, y1: Y(t), y2: Y(t) }),
        el("svg:text", { x: left - 5, y: Y(t) + 4, "text-anchor": "end", text: fmt(Number(t.toPrecision(6))) }));
    }
    svg.append(el("svg:text", { x: (left + W) / 2, y: H - 4, "text-anchor": "middle", text: "seconds of computation" }));
    const group = el("svg:g", { "clip-path": `url(#${clip})` });
    for (const value of Object.values(panel.levels || {})) {
      group.append(el("svg:line", { x1: left, x2: W - right, y1: Y(value), y2: Y(value), class: "level", "stroke-dasharray": "2 3" }));
    }
    for (const line of panel.lines) {
      if (hidden.has(line.group)) continue;
      const style = styles[line.group];
      const d = line.x.map((v, i) => (i ? "L" : "M") + X(log(v)).toFixed(1) + " " + Y(line.y[i]).toFixed(1)).join("");
      group.append(el("svg:path", { d, stroke: style.color, "stroke-width": line.marked ? 3 : 1.2, "stroke-dasharray": style.dash ? "5 3" : null, opacity: line.marked ? 1 : 0.75 }));
      if (line.marked) group.append(el("svg:circle", { cx: X(log(line.x.at(-1))), cy: Y(line.y.at(-1)), r: 4, fill: style.color }));
    }
    svg.append(group);
  }
  const at = (event) => {
    const r = svg.getBoundingClientRect();
    return [(event.clientX - r.left) / r.width * W, (event.clientY - r.top) / r.height * H];
  };
  let from = null, box = null;
  svg.addEventListener("pointerdown", (event) => { from = at(event); box = el("svg:rect", { class: "box" }); svg.append(box); svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (from) {
      for (const [k, v] of Object.entries({ x: Math.min(x, from[0]), y: Math.min(y, from[1]), width: Math.abs(x - from[0]), height: Math.abs(y - from[1]) })) box.setAttribute(k, v);
      return;
    }
    let best = null, distance = 14;
    for (const line of panel.lines) {
      if (hidden.has(line.group)) continue;
      line.x.forEach((v, i) => { const d = Math.hypot(X(log(v)) - x, Y(line.y[i]) - y); if (d < distance) { distance = d; best = [line, i]; } });
    }
    showTip(event, best ? `${best[0].label}\n${fmt(best[0].x[best[1]])} s: ${fmt(best[0].y[best[1]])}` : "");
  });
  svg.addEventListener("pointerup", (event) => {
    const [x, y] = at(event), begin = from; from = null; if (box) box.remove();
    if (!begin || Math.abs(x - begin[0]) < 8 || Math.abs(y - begin[1]) < 8) return;
    const ux = (p) => view.x[0] + (p - left) / (W - left - right) * (view.x[1] - view.x[0]);
    const uy = (p) => view.y[0] + (H - bottom - p) / (H - top - bottom) * (view.y[1] - view.y[0]);
    view = { x: [ux(Math.min(x, begin[0])), ux(Math.max(x, begin[0]))], y: [uy(Math.max(y, begin[1])), uy(Math.min(y, begin[1]))] };
    draw();
  });
  svg.addEventListener("pointercancel", () => { from = null; if (box) box.remove(); });
  svg.addEventListener("pointerleave", (event) => showTip(event, ""));
  const reset = () => { view = whole; draw(); };
  svg.addEventListener("dblclick", reset);
  // The same by keyboard: plus and minus zoom, arrows move, 0 resets.
  svg.addEventListener("keydown", (event) => {
    const spread = (range, by) => { const m = (range[0] + range[1]) / 2, h = (range[1] - range[0]) / 2 * by; return [m - h, m + h]; };
    const move = (range, by) => range.map((v) => v + by * (range[1] - range[0]));
    const keys = {
      "+": () => ({ x: spread(view.x, 0.7), y: spread(view.y, 0.7) }), "-": () => ({ x: spread(view.x, 1 / 0.7), y: spread(view.y, 1 / 0.7) }),
      ArrowLeft: () => ({ x: move(view.x, -0.2), y: view.y }), ArrowRight: () => ({ x: move(view.x, 0.2), y: view.y }),
      ArrowUp: () => ({ x: view.x, y: move(view.y, 0.2) }), ArrowDown: () => ({ x: view.x, y: move(view.y, -0.2) }), "0": () => whole,
    };
    const change = keys[event.key === "=" ? "+" : event.key];
    if (change) { event.preventDefault(); view = change(); draw(); }
  });
  draw();
  return { svg, draw, reset };
}
function heatmap(panel) {
  const values = bytes(panel.data), canvas = el("canvas", { width: panel.columns, height: panel.rows });
  const context = canvas.getContext("2d"), image = context.createImageData(panel.columns, panel.rows);
  values.forEach((v, i) => {  // white to dark blue, by lightness alone
    const t = v / 255; image.data.set([247 - 239 * t, 251 - 203 * t, 255 - 148 * t, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
  canvas.addEventListener("pointermove", (event) => {
    const r = canvas.getBoundingClientRect();
    const k = Math.min(panel.columns - 1, Math.floor((event.clientX - r.left) / r.width * panel.columns));
    const i = Math.min(panel.rows - 1, Math.floor((event.clientY - r.top) / r.height * panel.rows));
    const rows = panel.per > 1 ? `features from ${i * panel.per + 1}` : `feature ${i + 1}`;
    showTip(event, `${panel.title}\n${rows}, factor ${k + 1}: ${(values[i * panel.columns + k] / 255).toFixed(2)}`);
  });
  canvas.addEventListener("pointerleave", (event) => showTip(event, ""));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${panel.title}: probability of inclusion of ${panel.per > 1 ? "groups of features" : "features"} (down, ${panel.rows}) in factors (across, ${panel.columns})`);
  return el("figure", {}, el("h3", { text: panel.title }), canvas, el("figcaption", { class: "soft", text: `down: features as in the data; across: factors 1 to ${panel.columns}; white 0, dark 1` }));
}
