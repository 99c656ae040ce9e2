"use strict";
// Text reaches the page through textContent only.
function el(name, attributes, ...children) {
  const node = document.createElement(name);
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
// Builds the page, section by section, from the data in it.
function fileName(title, ending) { return title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") + "." + ending; }
function csv(rows) {
  const cell = (v) => { const text = v == null ? "" : String(v); return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
function download(title, rows, word) {
  // The address is made when it is asked for: a large table need not stand in the page twice.
  const link = el("a", { href: "#", class: "download", download: fileName(title, "csv"), text: `download ${word}`, "aria-label": `download ${title} as ${word}` });
  link.addEventListener("click", () => { link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csv(rows())); });
  return link;
}
function scroller(name, child) { return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, child); }
function shade(loading) {  // blue or orange, the more the larger
  return `background:rgba(${loading < 0 ? "213,94,0" : "0,114,178"},${Math.min(0.5, 0.5 * Math.abs(loading)).toFixed(3)})`;
}
function sortable(columns, rows, options) {
  // columns: [{name, number}], rows: arrays; options.limit: rows shown at once.
  const state = { column: options?.column ?? -1, down: options?.down ?? false, limit: options?.limit ?? 50, rows };
  const body = el("tbody"), more = el("button", { type: "button" }), count = el("span", { class: "soft" });
  // On a narrow screen a column of long texts, but for the first, is scrolled to rather than squeezed.
  const long = columns.map((column, c) => c > 0 && !column.number && rows.some((row) => String(row[c]).length > 20));
  const heads = columns.map((column, c) => {
    const button = el("button", { type: "button", text: column.name });
    button.addEventListener("click", () => {
      state.down = state.column === c ? !state.down : Boolean(column.number); state.column = c; draw();
    });
    return el("th", { scope: "col", class: column.number ? "number" : null }, button);
  });
  function draw() {
    heads.forEach((head, c) => head.setAttribute("aria-sort", c !== state.column ? "none" : state.down ? "descending" : "ascending"));
    let shown = state.rows;
    if (state.column >= 0) {
      const c = state.column, sign = state.down ? -1 : 1, number = columns[c].number;
      const value = (row) => columns[c].key ? columns[c].key(row[c]) : row[c];
      shown = [...shown].sort((a, b) => sign * (number ? (value(a) ?? -Infinity) - (value(b) ?? -Infinity) : String(value(a)).localeCompare(String(value(b)), "en", { numeric: true })));
    }
    body.replaceChildren(...shown.slice(0, state.limit).map((row) => el("tr", {}, ...row.map((cell, c) => el("td", { class: columns[c].number ? "number" : long[c] ? "long" : null, style: columns[c].shade && cell ? shade(cell) : null, text: fmt(cell, columns[c].decimals) })))));
    count.textContent = `${Math.min(state.limit, shown.length)} of ${shown.length.toLocaleString("en")} rows`;
    more.textContent = "show more"; more.hidden = shown.length <= state.limit;
  }
  more.addEventListener("click", () => { state.limit *= 4; draw(); });
  draw();
  const link = download(options?.name ?? "table", () => [columns.map((c) => c.name), ...state.rows], "CSV");
  const node = el("div", {}, scroller(options?.name ?? "table", el("table", {}, el("caption", { class: "hidden", text: options?.name ?? "table" }), el("thead", {}, el("tr", {}, ...heads)), body)), el("div", { class: "controls" }, count, more, link));
  return { node, set: (next) => { state.rows = next; draw(); } };
}
const RENDER = {
  table(s) {
    const columns = s.columns.map((column) => (column.shade ? { ...column, key: (v) => (v == null ? null : Math.abs(v)) } : column));
    const node = sortable(columns, s.rows, { name: s.title, limit: s.limit }).node;
    if (columns.some((column) => column.shade)) node.classList.add("matrix");
    return [node];
  },
  verdict: (s) => [
    el("p", { class: "verdict-box " + s.level }, el("strong", { text: s.label + " " }), s.text),
    ...s.lines.map((text) => el("p", { text: text.replaceAll(" -", " \u2212") })),  // a minus sign stays with its name
  ],
  figure(s) {
    const source = "data:image/svg+xml;base64," + s.image;
    const link = el("a", { href: source, class: "download", download: fileName(s.title, "svg"), text: "download SVG", "aria-label": `download ${s.title} as SVG` });
    return [el("figure", { class: "drawn" }, el("img", { src: source, alt: s.alt, width: s.width }), el("figcaption", { class: "soft", text: s.caption })), el("div", { class: "controls" }, link)];
  },
  factors(s) {
    const K = s.n_factors, G = s.features.length;
    const loadings = floats(s.loadings), sd = s.sd ? floats(s.sd) : null, prob = bytes(s.inclusion), F = floats(s.activations);
    const select = el("select", { "aria-label": "factor" }, ...s.order.map((k) => el("option", { value: k, text: `factor ${k + 1} (${(100 * s.shares[k]).toFixed(1)} %)` })));
    const search = el("input", { type: "search", placeholder: "search features", "aria-label": "search features" });
    const columns = [{ name: "feature" }, { name: "loading", number: true, key: Math.abs }, ...(sd ? [{ name: "sd", number: true }] : []), { name: "inclusion", number: true, decimals: 2 }];
    const rows = () => {
      let largest = 0;
      for (let j = Number(select.value); j < loadings.length; j += K) largest = Math.max(largest, Math.abs(loadings[j]));
      const decimals = largest > 0 ? Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(largest)))) : 3;
      columns.slice(1, -1).forEach((column) => { column.decimals = decimals; });
      const k = Number(select.value), word = search.value.trim().toLowerCase(), out = [];
      for (let i = 0; i < G; i++) {
        if (word && !s.features[i].toLowerCase().includes(word)) continue;
        const j = i * K + k; out.push([s.features[i], Number(loadings[j].toPrecision(7)), ...(sd ? [Number(sd[j].toPrecision(7))] : []), Number((prob[j] / 255).toFixed(2))]);
      }
      return out;
    };
    const table = sortable(columns, rows(), { column: 1, down: true, limit: 25, name: "Features of the factor" });
    const bars = el("div", { class: "bars", role: "img" });
    const all = () => [["sample", ...s.order.map((k) => `factor ${k + 1}`)], ...s.samples.map((name, j) => [name, ...s.order.map((k) => F[j * K + k])])];
    function draw() {
      const k = Number(select.value), values = s.samples.map((_, j) => F[j * K + k]);
      const largest = Math.max(1e-12, ...values.map(Math.abs));
      let order = values.map((_, j) => j);
      if (order.length > 60) order = order.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 60);
      const scale = el("div", { class: "scale" }, el("span", { text: "sample" }), el("b", {}, ...[-largest, 0, largest].map((v) => el("small", { text: String(Number(v.toPrecision(2))) }))));
      bars.replaceChildren(scale, ...order.map((j) => {
        const w = 50 * Math.abs(values[j]) / largest;
        const bar = el("i", { class: values[j] < 0 ? "below" : null, style: `width:${w}%;left:${values[j] < 0 ? 50 - w : 50}%` });
        return el("div", { title: `${s.samples[j]}: ${fmt(values[j])}` }, el("span", { text: s.samples[j] }), el("b", {}, bar));
      }));
      const top = order.slice().sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, 3);
      bars.setAttribute("aria-label", `Bars of factor ${k + 1} over samples; largest: ` + top.map((j) => `${s.samples[j]} ${fmt(values[j])}`).join(", "));
      table.set(rows());
    }
    select.addEventListener("change", draw); search.addEventListener("input", () => table.set(rows()));
    draw();
    const many = s.samples.length > 60 ? "Scores (activations): the 60 largest" : "Scores (activations) of the samples";
    return [el("div", { class: "controls" }, select, search), el("div", { class: "grid" }, el("div", {}, el("h3", { text: "Features" }), table.node), el("div", {}, el("h3", { text: many }), bars, el("div", { class: "controls" }, download("Activations", all, "CSV"))))];
  },
  record: (s) => [el("details", {}, el("summary", { text: "Settings, versions, machine, time" }), el("pre", { text: JSON.stringify(s.record, null, 2) }))],
};
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main"), nav = document.querySelector("nav");
data.sections.forEach((section, n) => {
  nav.append(el("a", { href: `#s${n}`, text: section.title }));
  main.append(el("section", { id: `s${n}`, "aria-labelledby": `h${n}` }, el("h2", { id: `h${n}`, text: section.title }), section.note ? el("p", { class: "soft", text: section.note }) : null, ...RENDER[section.kind](section)));
});
document.body.dataset.ready = "yes";
