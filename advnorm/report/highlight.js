// What belongs together lights up together: a row of a table, its points and its lines.

// Keys are a group, or a group and one of its runs after a tab.
function related(key, other) {
  return key === other || other.startsWith(`${key}\t`) || key.startsWith(`${other}\t`);
}

let pinned = "";

function highlight(key) {
  const shown = key || pinned;
  for (const item of document.querySelectorAll("[data-key]")) {
    const own = item.dataset.key;
    item.classList.toggle("hot", Boolean(shown && own && related(shown, own)));
  }
  for (const chart of document.querySelectorAll("svg.chart")) {
    chart.classList.toggle("dimmed", chart.querySelector(".hot") !== null);
  }
}

function startHighlight() {
  for (const row of document.querySelectorAll("tr[data-key]")) {
    const key = row.dataset.key, head = row.cells[0];
    const point = button("", () => {
      pinned = pinned === key ? "" : key;
      for (const other of document.querySelectorAll("tr[data-key] button.point")) {
        other.setAttribute("aria-pressed", String(other.closest("tr").dataset.key === pinned));
      }
      highlight("");
    }, { class: "point", "aria-pressed": "false", title: "Highlight in the figures" });
    point.append(...[...head.childNodes].filter(node => !node.matches?.("sup, small")));
    point.lastChild.textContent = point.lastChild.textContent.trim(); // no line below a space
    head.prepend(point);
    row.addEventListener("pointerenter", () => highlight(key));
    row.addEventListener("pointerleave", () => highlight(""));
    row.addEventListener("focusin", () => highlight(key));
    row.addEventListener("focusout", () => highlight(""));
  }
}
