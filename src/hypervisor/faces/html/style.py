"""How a page looks, and the little that it can do: filter and sort its table."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --ink: #1b1e23; --soft: #666d78; --faint: #a3a9b3; --line: #e6e7ea;
  --wash: #f3f4f5; --accent: #2f6f6a; --bad: #c4412f; --worse: #8c2230; --warn: #bf8a1e;
  --rest: #b9bec6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --ink: #e6e8eb; --soft: #9aa2ad; --faint: #666d78; --line: #2a2e35;
    --wash: #1c1f25; --accent: #5fb3aa; --bad: #e5705c; --worse: #c9485a; --warn: #d9a944;
    --rest: #565d68;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 4rem 2rem 6rem; max-width: 68rem; background: var(--paper);
  color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { margin: 0; font-size: 2rem; font-weight: 650; line-height: 1.2; letter-spacing: -.02em;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 1.1rem; font-size: 1.05rem; font-weight: 620; letter-spacing: -.005em; }
section { margin-top: 3.5rem; }
a { color: inherit; }
code, pre, .id { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace;
  font-size: .86em; }
.note { color: var(--soft); font-size: .9rem; margin: .9rem 0 0; }
h2 + .note { margin: -.8rem 0 1.2rem; }
.what { margin: .7rem 0 0; color: var(--soft); overflow-wrap: anywhere; }
.verdict { display: flex; align-items: baseline; gap: .55rem; margin: 0 0 .6rem; font-weight: 600;
  color: var(--accent); }
.verdict::before { content: ""; width: .6rem; height: .6rem; border-radius: 50%;
  background: currentColor; }
.verdict.bad { color: var(--bad); }
.verdict.open { color: var(--warn); }

.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr));
  gap: 1.6rem 1.5rem; margin: 2.6rem 0 0; padding: 0; }
.figures div { display: flex; flex-direction: column-reverse; }
.figures dd { margin: 0; font-size: 1.65rem; font-weight: 600; letter-spacing: -.02em;
  line-height: 1.25; font-variant-numeric: tabular-nums; }
.figures dt { color: var(--soft); font-size: .86rem; }
.figures .bad dd { color: var(--bad); }

svg { display: block; width: 100%; }
.share { height: .55rem; margin-top: 2.2rem; border-radius: 99px; background: var(--wash); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.3rem; margin: .8rem 0 0; padding: 0;
  list-style: none; color: var(--soft); font-size: .88rem; }
.legend i { display: inline-block; width: .65rem; height: .65rem; margin-right: .45rem;
  border-radius: 2px; background: var(--rest); }
.done { fill: var(--accent); } i.done { background: var(--accent); }
.failed { fill: var(--bad); } i.failed { background: var(--bad); }
.crashed { fill: var(--worse); } i.crashed { background: var(--worse); }
.blocked, .review { fill: var(--warn); } i.blocked, i.review { background: var(--warn); }
.running, .in_progress, .merging { fill: var(--soft); }
i.running, i.in_progress, i.merging { background: var(--soft); }
.released, .cancelled, .active, .waiting, .inbox { fill: var(--rest); }
.q1 { opacity: .3; } .q2 { opacity: .5; } .q3 { opacity: .75; }

.lanes { display: grid; grid-template-columns: minmax(4rem, max-content) 1fr; gap: .3rem 1rem;
  align-items: center; }
.lanes span { color: var(--soft); font-size: .82rem; white-space: nowrap; overflow: hidden;
  text-overflow: ellipsis; max-width: 10rem; }
.lanes svg { height: 1.05rem; background: var(--wash); border-radius: 3px; }
.lanes svg rect { shape-rendering: crispEdges; stroke: var(--paper); stroke-width: .6;
  vector-effect: non-scaling-stroke; }
.lanes svg .cell { stroke: none; }
.lanes svg .gap { fill: var(--paper); stroke: none; }
.lanes rect:hover { opacity: .65; }
.ticks { display: flex; justify-content: space-between; color: var(--soft); font-size: .8rem;
  font-variant-numeric: tabular-nums; padding-top: .3rem; border-top: 1px solid var(--line); }

.bins { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); gap: .5rem;
  align-items: end; }
.bins div { text-align: center; color: var(--soft); font-size: .8rem; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.bins svg { height: 7.5rem; margin: .3rem 0 .45rem; border-bottom: 1px solid var(--line); }
.gain { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; }
.gain + h3, .gain + .note + h3 { margin-top: 2rem; }
.gain .y { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; }
.gain .y, .gain .x { color: var(--soft); font-size: .8rem; font-variant-numeric: tabular-nums; }
.gain svg { height: 11rem; background: var(--wash); border-radius: 3px; }
.gain .x { grid-column: 2; display: grid; grid-auto-flow: column; text-align: center;
  grid-auto-columns: minmax(0, 1fr); padding-top: .25rem; }
.gain .x b { color: var(--accent); }
.band { fill: var(--accent); opacity: .22; }
.mean { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke; }
.ideal { stroke: var(--rest); stroke-dasharray: 3 4; vector-effect: non-scaling-stroke; }
.next { stroke: var(--accent); stroke-dasharray: 2 3; vector-effect: non-scaling-stroke; }
h3 { margin: 0 0 .8rem; font-size: .95rem; font-weight: 600; overflow-wrap: anywhere; }
.bars { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr max-content;
  gap: .55rem 1rem; align-items: center; }
.bars span { overflow-wrap: anywhere; max-width: 22rem; }
.bars svg { height: .75rem; background: var(--wash); border-radius: 2px; }
.bars b { font-weight: 500; font-variant-numeric: tabular-nums; text-align: right; }
.bars small { grid-column: 1 / -1; margin: -.35rem 0 .35rem; color: var(--soft);
  overflow-wrap: anywhere; }

.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { padding: .45rem 1rem .45rem 0; text-align: left; font-size: .8rem; font-weight: 500;
  color: var(--soft); border-bottom: 1px solid var(--line); white-space: nowrap; }
td { padding: .5rem 1rem .5rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
tbody tr:last-child td { border-bottom: 0; }
th.r, td.r { text-align: right; white-space: nowrap; }
td.r, td.t { overflow-wrap: normal; }
td.t { white-space: nowrap; color: var(--soft); }
td small { display: block; color: var(--soft); }
th:last-child, td:last-child { padding-right: 0; }
.state { white-space: nowrap; }
.state i, .mark { display: inline-block; width: .55rem; height: .55rem; margin-right: .5rem;
  border-radius: 50%; background: var(--rest); }
.state i.done, .mark.done { background: var(--accent); }
.state i.failed, .mark.failed { background: var(--bad); }
.state i.blocked, .state i.review, .mark.open { background: var(--warn); }
.state i.rejected { background: var(--bad); } .state i.approved { background: var(--accent); }
.state i.open { background: var(--warn); }

details { border-top: 1px solid var(--line); }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { display: flex; gap: 1rem; padding: .7rem 0; cursor: pointer; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "›"; color: var(--faint); transition: transform .12s; }
details[open] summary::before { transform: rotate(90deg); }
summary .name { font-weight: 550; overflow-wrap: anywhere; }
summary .why { flex: 1; color: var(--bad); overflow-wrap: anywhere; }
summary .cost { color: var(--soft); white-space: nowrap; }
details > div { padding: 0 0 1.1rem 1.6rem; }
pre { margin: 0 0 .6rem; padding: .9rem 1.1rem; overflow-x: auto; background: var(--wash);
  border-radius: 6px; line-height: 1.5; }
input { width: 100%; max-width: 22rem; margin: 0 0 1rem; padding: .5rem .8rem; font: inherit;
  color: inherit; background: var(--wash); border: 1px solid transparent; border-radius: 6px; }
input:focus { outline: none; border-color: var(--accent); }
.scripted th[data-by] { cursor: pointer; } .scripted th[data-by]:hover { color: var(--ink); }
th[aria-sort=ascending]::after { content: " ↑"; } th[aria-sort=descending]::after { content: " ↓"; }
body:not(.scripted) .only-scripted { display: none; }
[hidden] { display: none !important; }
footer { margin-top: 5rem; color: var(--faint); font-size: .84rem; }

@media (max-width: 40rem) {
  body { padding: 2rem 1.1rem 4rem; }
  h1 { font-size: 1.5rem; }
  section { margin-top: 2.6rem; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1.2rem; margin-top: 1.8rem; }
  .figures dd { font-size: 1.35rem; }
  .wide { display: none; }
  .lanes { grid-template-columns: 1fr; gap: .1rem; }
  .lanes .axis { display: none; }
  .lanes svg { margin-bottom: .4rem; }
  .bins { gap: .2rem; } .bins div { font-size: .68rem; }
  .ticks span:nth-child(even) { display: none; }
  summary { flex-wrap: wrap; gap: .1rem .7rem; } summary .why { flex-basis: 100%; order: 3;
    padding-left: 1rem; }
  .bars { gap: .4rem .7rem; }
}
@media print {
  body { padding: 0; max-width: none; font-size: 11px; background: #fff; color: #000; }
  section { margin-top: 1.8rem; } .only-scripted { display: none; }
  tr, details, .lanes, .bins { break-inside: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

SCRIPT = """
(() => {
  const table = document.getElementById("tasks");
  if (!table) return;
  document.body.classList.add("scripted");
  const body = table.tBodies[0], filter = document.getElementById("filter");
  const rows = Array.from(body.rows);
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
  const value = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.v);
  };
  const sort = head => {
    const at = head.cellIndex, numeric = head.dataset.by === "n";
    const was = head.getAttribute("aria-sort");
    const up = was ? was === "descending" : !numeric;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const turn = up ? 1 : -1;
    rows.sort((a, b) => {
      const x = value(a, at), y = value(b, at);
      return x < y ? -turn : x > y ? turn : 0;
    });
    body.append(...rows);
  };
  for (const head of table.tHead.rows[0].cells) {
    if (!head.dataset.by) continue;
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(head); });
  }
})();
"""


def source_hash(text: str) -> str:
    """How a content security policy names a style or script that may be used."""
    from base64 import b64encode
    from hashlib import sha256

    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy() -> str:
    """Nothing but our own style and script; nothing from anywhere."""
    return (
        f"default-src 'none'; style-src {source_hash(CSS)}; script-src {source_hash(SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )
