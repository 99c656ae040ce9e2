// The three smallest contrasts on a page: of text, lines, bars and borders against what lies behind them.
(() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parse = (c) => c.match(/[\d.]+/g).map(Number);
  const luminance = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) { const c = parse(getComputedStyle(n).backgroundColor); if (c.length < 4 || c[3] > 0.5) return c; }
    return [255, 255, 255];
  };
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    const style = getComputedStyle(node), back = behind(node);
    if (node.closest('script, style, noscript') || style.display === 'none') continue;
    if (own && !node.closest('svg')) found.push([ratio(parse(style.color), back), node.tagName + ' ' + node.className]);
    if (node.matches('svg text')) found.push([ratio(parse(style.fill), back), 'svg text']);
    if (node.matches('svg path, svg .level')) found.push([ratio(parse(style.stroke), back), 'svg line']);
    if (node.matches('.bars b i')) found.push([ratio(parse(style.backgroundColor), behind(node.parentElement)), 'bar']);
    if (node.matches('input[type=search], select, .controls button')) found.push([ratio(parse(style.borderTopColor), behind(node.parentElement)), 'border of ' + node.tagName]);
  }
  found.sort((a, b) => a[0] - b[0]);
  return found.slice(0, 3);
})()
