"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

document.getElementById("contents").open = innerWidth > 960;
document.getElementById("show-code").addEventListener("change", (event) => {
  for (const cell of all("details.code")) cell.open = event.target.checked;
});

// Figures open large.
const zoom = document.getElementById("zoom");
zoom.addEventListener("click", () => zoom.close());
for (const button of all("button.figure")) {
  button.addEventListener("click", () => {
    const { src, alt } = button.firstElementChild;
    Object.assign(zoom.querySelector("img"), { src, alt });
    zoom.setAttribute("aria-label", alt);
    zoom.showModal();
  });
}

// Tables sort and search.
datatables.then(({ default: DataTable }) => {
  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  DataTable.ext.errMode = "throw";
  const language = {
    info: "_TOTAL_ rows", infoEmpty: "no rows", infoFiltered: "of _MAX_", zeroRecords: "nothing found", search: "Search",
    searchBuilder: { button: { 0: "Filter", _: "Filter (%d)" } }, buttons: { colvis: "Columns" },
  };
  const whole = { paging: false, order: [], autoWidth: false, language };
  for (const cell of all(".output td")) if (/^(NaN|NaT|None|<NA>)$/.test(cell.textContent)) cell.textContent = "-"; // sorts with numbers
  for (const table of all(".output table")) {
    const names = table.tHead?.rows[0]?.cells.length;
    const regular = names && [...table.rows].every((row) => row.cells.length === names) && !table.querySelector("[rowspan], [colspan]");
    if (regular && table.rows.length > 2) new DataTable(table, { ...whole, searching: false, info: false });
  }
  const tables = new Map(all("section .lookup > table").map((table) => {
    const columnDefs = all("th", table).map((head, targets) => ({ targets, visible: head.textContent !== table.dataset.hidden }));
    const layout = { topStart: ["search", "info"], topEnd: { buttons: ["colvis", "searchBuilder"] }, bottomStart: null };
    return [table.closest("section").id, new DataTable(table, { ...whole, columnDefs, layout })];
  }));
  const runs = tables.get("runs");

  // Links show the runs behind a table, or of one state.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-runs], a[data-find]");
    if (!link) return;
    const places = link.dataset.runs && new Set(link.dataset.runs.split(",").map(Number));
    const behind = places && ((text, data, index) => places.has(index));
    runs.search.fixed("behind", behind ?? null).search(link.dataset.find ?? "").draw();
    document.getElementById("behind").textContent = link.dataset.name ? `The runs behind ${link.dataset.name}` : "";
  });

  // A link to a row that a search hides shows it again.
  const reveal = () => {
    const anchor = decodeURIComponent(location.hash.slice(1));
    const table = anchor && [...tables.values()].find((table) => table.row((index, data, row) => row.id === anchor).any());
    if (!table) return;
    table.search.fixed("behind", null).search("").draw();
    document.getElementById(anchor).scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();
});
