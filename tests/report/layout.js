// What the page in the frame looks like; layout.py reads it back.
const frame = document.getElementById('page'), doc = frame.contentDocument, win = frame.contentWindow;
const rgb = text => { const found = text.match(/[\d.]+/g); return found ? found.map(Number) : null; };
const light = ([r, g, b]) => { const part = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const clear = color => !color || (color.length === 4 && color[3] === 0);
const behind = element => { for (let e = element; e; e = e.parentElement) {
  const color = rgb(win.getComputedStyle(e).backgroundColor); if (!clear(color)) return color; } return [255, 255, 255]; };
const seen = element => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0 &&
  !element.closest('details:not([open]) > :not(summary)') && !element.closest('defs'); };
const name = e => e.tagName + '.' + (e.getAttribute('class') || '');
const out = { width: win.innerWidth, page: doc.documentElement.scrollWidth, text: {}, lines: {}, boxes: [], cut: [] };
const note = (into, key, value) => { into[key] = Math.min(into[key] ?? 99, value); };
for (const e of doc.querySelectorAll('body *')) {
  if (!seen(e)) continue;
  const style = win.getComputedStyle(e), drawn = e instanceof win.SVGElement;
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (own && e.tagName !== 'title') note(out.text, name(e), contrast(rgb(drawn ? style.fill : style.color), behind(e)));
  if (drawn && ['line', 'path', 'use', 'circle', 'polyline', 'polygon', 'rect'].includes(e.tagName)) {
    const paper = behind(e.closest('svg').parentElement);
    const colors = [style.stroke, style.fill].filter(c => c !== 'none').map(rgb).filter(c => !clear(c));
    if (colors.length && e.getAttribute('class')) note(out.lines, name(e), Math.max(...colors.map(c => contrast(c, paper))));
  }
  if (!drawn && ['auto', 'scroll'].includes(style.overflowX) && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1))
    out.boxes.push({ name: name(e), sideways: e.scrollWidth > e.clientWidth + 1, key: e.tabIndex, role: e.getAttribute('role'), label: e.getAttribute('aria-label') });
  const box = e.getBoundingClientRect();
  if (!e.closest('.scroll, pre') && (box.right > win.innerWidth + 1 || box.left < -1)) out.cut.push(name(e));
  if (['hidden', 'clip'].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1 && !drawn) out.cut.push(name(e));
}
const style = (selector, property) => { const e = doc.querySelector(selector); return e ? win.getComputedStyle(e)[property] : null; };
out.dashes = [style('.line.reference', 'strokeDasharray'), style('.line.other', 'strokeDasharray')];
out.colors = [style('.line.reference', 'stroke'), style('.line.other', 'stroke')].map(c => c ? rgb(c) : null);
document.body.innerHTML = '<pre id="found">' + JSON.stringify(out).replace(/&/g, '&amp;').replace(/</g, '&lt;') + '</pre>';
