// Tables that a reader sorts by a click on a heading, and filters by words and warnings.

function sortValue(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent.trim();
}

// The number that a text begins with; what is missing comes below all numbers.
function leadingNumber(text) {
  if (["", "-", "–"].includes(text)) return -Number.MAX_VALUE;
  return /^[-+]?\.?\d/.test(text) ? parseFloat(text) : NaN;
}

function sortedRows(rows, column, descending) {
  const texts = new Map(rows.map(row => [row, sortValue(row, column)]));
  const numbers = new Map(rows.map(row => [row, leadingNumber(texts.get(row))]));
  const numeric = [...numbers.values()].every(number => !isNaN(number));
  const order = (a, b) => numeric
    ? numbers.get(a) - numbers.get(b)
    : texts.get(a).localeCompare(texts.get(b), "en", { numeric: true });
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * order(a, b));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const sort = button("", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...sortedRows([...body.rows], column, descending));
    }, { title: "Sort by this column" });
    sort.append(...[...head.childNodes].filter(node => !node.matches?.("sup")));
    head.prepend(sort);
  });
}

// Whether a row has all words of a filter, and none of the warnings that it excludes.
function rowMatches(text, marks, words, excluded) {
  const low = text.toLowerCase();
  return words.toLowerCase().split(/\s+/).every(word => low.includes(word)) &&
    !excluded.some(mark => marks.split(" ").includes(mark));
}

function makeFilterable(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 2) return;
  const name = table.caption ? table.caption.textContent.trim() : "table";
  const input = element("input", { type: "search", autocomplete: "off" });
  const count = element("span", { role: "status", class: "small" });
  const boxes = [["flagged", "hide warnings"], ["unfinished", "hide unfinished"]]
    .filter(([mark]) => rows.some(row => (row.dataset.marks ?? "").split(" ").includes(mark)))
    .map(([mark, text]) => [mark, text, element("input", { type: "checkbox" })]);
  const update = () => {
    const excluded = boxes.filter(([, , box]) => box.checked).map(([mark]) => mark);
    for (const row of rows) {
      row.hidden = !rowMatches(row.textContent, row.dataset.marks ?? "", input.value, excluded);
    }
    const shown = rows.filter(row => !row.hidden).length;
    count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length} rows`;
  };
  const controls = element("div", { class: "controls", role: "search", "aria-label": `Filter: ${name}` },
    element("label", {}, "Filter rows ", input));
  for (const [, text, box] of boxes) {
    box.addEventListener("change", update);
    controls.append(element("label", {}, box, ` ${text}`));
  }
  controls.append(count);
  input.addEventListener("input", update);
  (table.closest(".scroll") ?? table).before(controls);
}

function startTables() {
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("table.filterable").forEach(makeFilterable);
}
