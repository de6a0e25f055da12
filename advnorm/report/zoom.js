// Zoom into the horizontal axis of a chart: buttons, or a drag over the part to see.

// Round numbers between two values, about `count` of them; as round_ticks in charts.py.
function roundTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(isFinite(rough) && rough > 0)) return [low];
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(s => s * size).find(s => s >= 0.999 * rough);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const ticks = [];
  for (let number = first; number <= last; number++) {
    ticks.push(Number((number * step).toPrecision(12)));
  }
  return ticks;
}

// The part of an axis after a zoom by `factor` around its middle, or a shift by a share.
function zoomed([low, high], whole, factor, shift = 0) {
  const width = Math.min((high - low) / factor, whole[1] - whole[0]);
  const middle = (low + high) / 2 + shift * width;
  const from = Math.min(Math.max(middle - width / 2, whole[0]), whole[1] - width);
  return [from, from + width];
}

const SVG = "http://www.w3.org/2000/svg";

function startZoom(svg) {
  const whole = [Number(svg.dataset.low), Number(svg.dataset.high)];
  const axis = svg.querySelector(".axis").getAttribute("d").match(/[\d.]+/g).map(Number);
  const [left, top, bottom, right] = axis;
  const lines = svg.querySelector(".lines"), ticks = svg.querySelector(".x-ticks");
  const first = ticks.cloneNode(true), marks = [...svg.querySelectorAll(".datum")];
  const status = element("span", { role: "status", class: "small" });
  let range = whole;
  const place = value => left + ((value - range[0]) / (range[1] - range[0])) * (right - left);
  const show = next => {
    range = next;
    const factor = (whole[1] - whole[0]) / (range[1] - range[0]);
    const shift = place(whole[0]) - left * factor;
    lines.setAttribute("transform", `matrix(${factor} 0 0 1 ${shift} 0)`);
    for (const mark of marks) {
      const y = mark.getAttribute("transform").match(/ ([-\d.]+)\)/)[1];
      mark.setAttribute("transform", `translate(${mark.dataset.x * factor + shift} ${y})`);
    }
    const at = roundTicks(range[0], range[1], 6);
    ticks.replaceChildren(...(factor > 1.001 ? at.flatMap(tick => {
      const line = document.createElementNS(SVG, "path"), text = document.createElementNS(SVG, "text");
      line.setAttribute("class", "grid");
      line.setAttribute("d", `M${place(tick)} ${top}V${bottom}`);
      text.setAttribute("x", place(tick));
      text.setAttribute("y", bottom + 16);
      text.setAttribute("text-anchor", "middle");
      text.textContent = tick;
      return [line, text];
    }) : first.cloneNode(true).childNodes));
    status.textContent = factor > 1.001
      ? `${Number(range[0].toPrecision(3))} to ${Number(range[1].toPrecision(3))}` : "";
  };
  const change = (text, name, next) =>
    button(text, () => show(next()), { "aria-label": name, title: name });
  svg.closest("figure").append(element("div", { class: "controls" },
    change("+", "Zoom in", () => zoomed(range, whole, 2)),
    change("−", "Zoom out", () => zoomed(range, whole, 0.5)),
    change("←", "Earlier", () => zoomed(range, whole, 1, -0.5)),
    change("→", "Later", () => zoomed(range, whole, 1, 0.5)),
    change("all", "Show all", () => whole),
    status));
  let start = null;
  const value = event => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const share = Math.min(1, Math.max(0, (point.x - left) / (right - left)));
    return range[0] + share * (range[1] - range[0]);
  };
  svg.addEventListener("pointerdown", event => { start = value(event); });
  svg.addEventListener("pointerup", event => {
    const end = value(event), from = start;
    start = null;
    const least = (range[1] - range[0]) / 50;
    if (from !== null && Math.abs(end - from) > least) show([Math.min(from, end), Math.max(from, end)]);
  });
}

function startZooms() {
  document.querySelectorAll("svg.chart[data-low]").forEach(startZoom);
}
