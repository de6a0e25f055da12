// The browser over all verdicts: filters, counts, a list of samples, one sample in detail.

const PAGE = 25;
const FULL_TABLE = 20; // with more classes, confusions are a list and no table
const MOST_PAIRS = 30;
const SIGNS = ["", "–", "✗", "✓", "★", "○"];

function percent(count, n) {
  return n ? `${(100 * count / n).toFixed(1)}%` : "–";
}

function outcomeText(table, record, i) {
  const outcome = record.outcomes[i], name = table.data.outcomes[outcome];
  const answer = outcome === BROKEN || outcome === MISCLASSIFIED ? ` → ${record.predictions[i]}` : "";
  const by = outcome === BROKEN && record.attacks.length > 1 ? ` (${record.attacks[record.attack[i]]})` : "";
  return `${SIGNS[outcome]} ${name}${answer}${by}`.trim();
}

function outcomeCell(table, record, i, tag = "td") {
  const classes = ["", "wrong", "wrong", "good", "good", ""];
  return element(tag, { class: classes[record.outcomes[i]] }, outcomeText(table, record, i));
}

function headRow(texts) {
  return element("thead", {}, element("tr", {}, ...texts.map((text, place) =>
    element("th", { scope: "col", class: place && typeof text === "number" ? "number" : null }, text))));
}

function scrolling(label, content) {
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `${label}, scrolls sideways` }, content);
}

class SampleBrowser {
  constructor(table, root) {
    this.table = table;
    this.root = root;
    this.filter = { condition: 0, ...ANY };
    this.page = 0;
    this.controls = element("div", { class: "controls", role: "search", "aria-label": "Filter the samples" });
    this.count = element("p", { id: "samples-count", role: "status" });
    this.counts = element("div", { id: "samples-counts" });
    this.list = element("div", { id: "samples-list" });
    this.pager = element("div", { class: "controls", id: "samples-pager" });
    this.detail = element("div", { id: "sample-detail" });
    root.replaceChildren(this.controls, this.count, this.counts, this.list, this.pager, this.detail);
    this.update({});
  }

  name(run) {
    return this.table.data.runs[run].name;
  }

  update(changes) {
    Object.assign(this.filter, changes);
    this.page = 0;
    this.settle();
    this.drawControls();
    this.positions = selectSamples(this.table, this.filter);
    this.draw();
  }

  // Reset what the condition does not have: runs, attacks and radii.
  settle() {
    const { table, filter } = this, runs = table.runs(filter.condition);
    if (!runs.includes(filter.run)) filter.run = -1;
    if (filter.other >= 0 && !runs.includes(filter.other)) filter.other = -2;
    if (!this.attacks().includes(filter.attack)) filter.attack = "";
    const known = filter.radius === null || isNaN(filter.radius) || this.radii().includes(filter.radius);
    if (!known || !this.radii().length) filter.radius = null;
  }

  attacks() {
    const { table, filter } = this;
    const names = table.runs(filter.condition).flatMap(run => table.record(run, filter.condition).attacks);
    return [...new Set(names)];
  }

  radii() {
    const { table, filter } = this;
    return [...new Set(table.family(filter.condition).map(place => table.data.conditions[place].eps))];
  }

  drawControls() {
    const { table, filter } = this, runs = table.runs(filter.condition);
    const focused = document.activeElement?.id;
    const labels = [...new Set(table.sets[table.set(filter.condition)].labels)].sort((a, b) => a - b);
    const add = (name, label, pairs, read = Number) => {
      const value = filter[name] === null ? "" : String(filter[name]);
      const made = choice(`filter-${name}`, label, pairs, event =>
        this.update({ [name]: event.target.value === "" && read === Number ? null : read(event.target.value) }));
      made.querySelector("select").value = value;
      return made;
    };
    const named = runs.map(run => [run, this.name(run)]);
    const outcomes = table.data.outcomes.map((text, code) => [code, text]).slice(1);
    const attacks = this.attacks(), radii = this.radii();
    this.controls.replaceChildren(
      add("condition", "Condition ", table.data.conditions.map(({ label }, place) => [place, label])
        .filter(([place]) => table.runs(place).length)),
      add("run", "Run ", [[-1, "any run"], ...named]),
      add("outcome", "Outcome ", [[-1, "any outcome"], ...outcomes]),
      add("label", "Class ", [[-1, "all classes"], ...labels.map(label => [label, label])]),
    );
    if (attacks.length > 1) {
      this.controls.append(add("attack", "Broken by ", [["", "any attack"], ...attacks.map(a => [a, a])], String));
    }
    if (radii.length) {
      this.controls.append(add("radius", "Smallest radius that broke it ",
        [["", "any"], ...radii.map(eps => [eps, Number(eps.toPrecision(4))]), ["NaN", "none of them"]]));
    }
    if (runs.length > 1) {
      this.controls.append(add("other", "Disagrees with ",
        [[-2, "no matter"], [-1, "any other run"], ...named]));
    }
    this.controls.append(button("Reset", () => this.update({ ...ANY }), { id: "filter-reset" }));
    if (focused?.startsWith("filter-")) document.getElementById(focused)?.focus();
  }

  draw() {
    const { table, filter, positions } = this, set = table.sets[table.set(filter.condition)];
    this.count.textContent =
      `${positions.length} of ${set.size} samples of ${set.name} (${percent(positions.length, set.size)})`;
    this.drawCounts();
    this.drawList();
    this.drawConfusion();
  }

  drawCounts() {
    const { table, filter, positions } = this, runs = table.runs(filter.condition);
    const codes = table.data.outcomes.map((_, code) => code).slice(1);
    const rows = runs.map(run => [run, countOutcomes(table, run, filter.condition, positions)]);
    const used = codes.filter(code => rows.some(([, counts]) => counts[code]));
    const body = rows.map(([run, counts]) => element("tr", {}, element("th", { scope: "row" }, this.name(run)),
      ...used.map(code => element("td", { class: "number" }, counts[code],
        element("small", {}, percent(counts[code], positions.length - counts[NOT_TESTED]))))));
    this.counts.replaceChildren(scrolling("Outcomes of the selected samples", element("table", {},
      element("caption", {}, "Outcomes of the selected samples"),
      headRow(["run", ...used.map(code => table.data.outcomes[code])]),
      element("tbody", {}, ...body))));
  }

  drawList() {
    const { table, filter, positions } = this, runs = table.runs(filter.condition);
    const { condition } = filter, set = table.set(condition), { labels } = table.sets[set];
    const pages = Math.max(1, Math.ceil(positions.length / PAGE));
    const shown = positions.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const body = shown.map(i => element("tr", {},
      element("th", { scope: "row" }, button(`sample ${table.sample(set, i)}`, () => this.open(i), { class: "point" })),
      element("td", { class: "number" }, labels[i]),
      ...runs.map(run => outcomeCell(table, table.record(run, condition), i))));
    this.list.replaceChildren(scrolling("The selected samples", element("table", {},
      element("caption", {}, `The selected samples under ${table.data.conditions[condition].label}`),
      headRow(["sample", "class", ...runs.map(run => this.name(run))]),
      element("tbody", {}, ...body))));
    const turn = (text, by, off) => button(text, () => {
      this.page += by;
      this.drawList();
      document.getElementById(by > 0 ? "samples-next" : "samples-previous")?.focus();
    }, { id: by > 0 ? "samples-next" : "samples-previous", disabled: off });
    this.pager.replaceChildren(turn("Previous", -1, this.page === 0),
      element("span", { role: "status" }, `page ${this.page + 1} of ${pages}`),
      turn("Next", 1, this.page >= pages - 1));
  }

  drawConfusion() {
    const target = document.getElementById("confusion");
    const { table, filter, positions } = this;
    const run = filter.run < 0 ? table.runs(filter.condition)[0] : filter.run;
    const counts = confusionCounts(table, run, filter.condition, positions);
    const title = `${this.name(run)}, ${table.data.conditions[filter.condition].label}, ` +
      `${positions.length} selected samples`;
    target.replaceChildren(scrolling("Confusions", confusionTable(title, counts)));
  }

  open(i) {
    const { table, filter } = this, set = table.set(filter.condition), number = table.sample(set, i);
    const runs = table.data.runs.map((_, run) => run);
    const rows = table.data.conditions.map((_, condition) => condition)
      .filter(condition => runs.some(run => table.record(run, condition)?.set === set));
    const body = rows.map(condition => element("tr", {},
      element("th", { scope: "row" }, table.data.conditions[condition].label),
      ...runs.map(run => {
        const record = table.record(run, condition);
        return record?.set === set ? outcomeCell(table, record, i) : element("td", {}, "–");
      })));
    const head = element("h3", { tabindex: "-1" }, `Sample ${number}, class ${table.sets[set].labels[i]}`);
    this.detail.replaceChildren(head,
      element("div", { class: "controls" }, button("Close", () => {
        this.detail.replaceChildren();
        document.getElementById("filter-condition").focus();
      })),
      scrolling("Verdicts on this sample", element("table", {},
        element("caption", {}, "Verdicts under all conditions"),
        headRow(["condition", ...runs.map(run => this.name(run))]), element("tbody", {}, ...body))),
      ...largeImages(image => image.dataset.sample === String(number)));
    head.focus();
  }
}

// A full table of classes, or the most frequent confusions of many classes.
function confusionTable(title, counts) {
  const classes = [...new Set(counts.flatMap(([label, answer]) => [label, answer]))].sort((a, b) => a - b);
  if (classes.length > FULL_TABLE) {
    const wrong = counts.filter(([label, answer]) => label !== answer).sort((a, b) => b[2] - a[2]);
    const rows = wrong.slice(0, MOST_PAIRS).map(values =>
      element("tr", {}, ...values.map(value => element("td", { class: "number" }, value))));
    return element("table", { class: "confusion" }, element("caption", {}, `Most frequent confusions: ${title}`),
      headRow(["true class", "predicted class", "samples"]), element("tbody", {}, ...rows));
  }
  const known = new Map(counts.map(([label, answer, count]) => [`${label} ${answer}`, count]));
  const most = Math.max(1, ...counts.filter(([a, b]) => a !== b).map(([, , count]) => count));
  const rows = classes.map(label => element("tr", {}, element("th", { scope: "row" }, label),
    ...classes.map(answer => {
      const count = known.get(`${label} ${answer}`) ?? 0;
      const shade = label !== answer && count ? `--share: ${(count / most).toFixed(2)}` : null;
      return element("td", { class: label === answer ? "number diagonal" : "number", style: shade }, count || "·");
    })));
  return element("table", { class: "confusion" }, element("caption", {}, title),
    headRow(["true \\ predicted", ...classes]), element("tbody", {}, ...rows));
}

// Copies of the kept images that a condition selects, enlarged: one figure a run.
function largeImages(selects) {
  const tables = [...document.querySelectorAll("table.images")];
  return tables.flatMap(table => {
    const images = [...table.querySelectorAll("img")].filter(selects);
    if (!images.length) return [];
    const row = element("div", { class: "large" });
    for (const image of images) {
      row.append(element("figure", {}, element("img", { src: image.src, alt: image.alt }),
        element("figcaption", {}, image.dataset.kind)));
    }
    return [element("p", { class: "small" }, table.caption.textContent), row];
  });
}

// Let a click on the heading of a column of images show them large.
function startImages() {
  for (const table of document.querySelectorAll("table.images")) {
    const view = element("div", { class: "view", role: "region", "aria-live": "polite",
      "aria-label": `Enlarged images, ${table.caption.textContent}` });
    table.closest(".scroll").after(view);
    [...table.tHead.rows[0].cells].slice(1).forEach((head, column) => {
      const own = new Set([...table.tBodies[0].rows].map(row => row.cells[column + 1].querySelector("img")));
      const show = button("", () => view.replaceChildren(...largeImages(image => own.has(image)).slice(1)),
        { class: "point", title: "Show large" });
      show.append(...head.childNodes);
      head.append(show);
    });
  }
}

function startSamples() {
  startImages();
  const source = document.getElementById("sample-data"), root = document.getElementById("sample-browser");
  if (!source || !root) return;
  const browser = new SampleBrowser(new VerdictTable(JSON.parse(source.textContent)), root);
  for (const row of document.querySelectorAll("tr[data-first]")) {
    const find = name => browser.table.data.runs.findIndex(run => run.name === name);
    const condition = browser.table.data.conditions.findIndex(({ key }) => key === row.dataset.condition);
    const [first, second] = [find(row.dataset.first), find(row.dataset.second)];
    if (condition < 0 || !browser.table.record(first, condition) || !browser.table.record(second, condition)) continue;
    const cell = row.cells[row.cells.length - 1];
    cell.append(button("samples", () => {
      browser.update({ ...ANY, condition, run: first, other: second });
      document.getElementById("sample-browser").scrollIntoView();
      document.getElementById("filter-condition").focus({ preventScroll: true });
    }, { class: "point" }));
  }
}
