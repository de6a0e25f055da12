// Charts whose points are read by pointing at them, or by Tab and the arrow keys.

const REACH = 28; // pixels around a point that still count as pointing at it

function nearest(marks, x, y) {
  let best = null, least = REACH;
  for (const mark of marks) {
    const box = (mark.querySelector(".shape") ?? mark).getBoundingClientRect();
    const away = Math.hypot(box.x + box.width / 2 - x, box.y + box.height / 2 - y);
    if (away < least) [best, least] = [mark, away];
  }
  return best;
}

function startChart(svg) {
  const marks = [...svg.querySelectorAll(".datum")]
    .sort((a, b) => a.dataset.x - b.dataset.x);
  if (!marks.length) return;
  const frame = svg.closest('[role="img"]');
  frame.setAttribute("role", "group");
  const hint = "Point at a mark, or press Tab and the arrow keys.";
  const readout = element("p", { class: "readout small", "aria-hidden": "true" }, hint);
  frame.after(readout);
  const show = mark => {
    for (const other of marks) other.classList.toggle("current", other === mark);
    readout.textContent = mark ? mark.dataset.text : hint;
    highlight(mark ? mark.dataset.key : "");
  };
  marks.forEach((mark, place) => {
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", mark.dataset.text);
    mark.setAttribute("tabindex", place ? "-1" : "0");
    mark.addEventListener("focus", () => show(mark));
    mark.addEventListener("blur", () => show(null));
    mark.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const ends = { Home: 0, End: marks.length - 1 };
      const to = event.key in ends ? ends[event.key] : place + (step ?? 0);
      if (to === place || !marks[to]) return;
      event.preventDefault();
      mark.setAttribute("tabindex", "-1");
      marks[to].setAttribute("tabindex", "0");
      marks[to].focus();
    });
  });
  svg.addEventListener("pointermove", event => show(nearest(marks, event.clientX, event.clientY)));
  svg.addEventListener("pointerleave", () => show(null));
}

function startCharts() {
  document.querySelectorAll("svg.chart").forEach(startChart);
}
