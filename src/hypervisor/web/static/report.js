(() => {
  const table = document.getElementById("tasks");
  if (!table) return;
  document.body.classList.add("scripted");
  const body = table.tBodies[0], filter = document.getElementById("filter");
  const rows = Array.from(body.rows);
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
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
