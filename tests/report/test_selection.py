"""What the page's scripts select and count, against a count in Python of the records."""

import json
from collections import Counter

import pytest
from node import evaluate, needs_node

from advnorm.report.groups import load_groups
from advnorm.report.sample_data import sample_data
from advnorm.report.template import script_data
from advnorm.report.verdict_arrays import OUTCOMES, all_verdicts

pytestmark = needs_node
RADII = (0.1, 0.2)
CODE = """values.filters.map(filter => {
  const table = new VerdictTable(values.data);
  filter = { ...filter, radius: filter.radius === "never" ? NaN : filter.radius ?? null };
  const positions = selectSamples(table, filter);
  const set = table.set(filter.condition);
  return {
    samples: positions.map(i => table.sample(set, i)),
    counts: table.runs(filter.condition).map(run =>
      [run, countOutcomes(table, run, filter.condition, positions)]),
    confusion: confusionCounts(table, table.runs(filter.condition)[0], filter.condition, positions),
  };
})"""


ANY = {"run": -1, "label": -1, "outcome": -1, "attack": "", "radius": None, "other": -2}


def outcome(verdicts, row, kind):
    """Name what became of a sample, straight from its record."""
    if verdicts.certified and verdicts.certified[row] and verdicts.robust[row]:
        return "certified"
    if verdicts.robust[row]:
        return "robust"
    if verdicts.by[row]:
        return "broken"
    right = verdicts.predictions[row] == verdicts.labels[row]
    return "not certified" if kind == "certificate" and right else "misclassified"


@pytest.fixture(scope="module")
def page(tmp_path_factory, maker_in):
    """Write three runs with verdicts; the third is certified on a few samples."""
    maker = maker_in(tmp_path_factory.mktemp("selection"))
    runs = [maker.run(name, norm=name) for name in ("a", "b", "c")]
    for i, run in enumerate(runs):
        maker.random_verdicts(run, "clean", n=300, seed=i)
        for eps in RADII[: 2 - (i == 1)]:
            maker.random_verdicts(
                run, "standard", n=300, seed=10 * i + int(eps * 10), eps=eps
            )
    certified = [row % 3 == 0 for row in range(40)]
    labels = [maker_label(runs[0], 2 * row) for row in range(40)]
    maker.tested(
        runs[2],
        "crown",
        labels=labels,
        predictions=[k if row % 4 else 11 for row, k in enumerate(labels)],
        samples=[2 * row for row in range(40)],
        robust=[c and row % 4 > 0 for row, c in enumerate(certified)],
        certified=[c and row % 4 > 0 for row, c in enumerate(certified)],
        eps=RADII[0],
    )
    groups = load_groups(runs)
    data = sample_data(groups, all_verdicts(groups), "standard_linf_0.1")
    assert not data.notes
    return runs, json.loads(script_data(data.values))


def maker_label(run, sample):
    return run.verdicts("clean").labels[sample]


class Definition:
    """A filter by its definition, sample by sample, from the records."""

    def __init__(self, page, filter_):
        self.runs, self.data = page
        self.filter = ANY | filter_
        condition = self.data["conditions"][filter_["condition"]]
        self.key, self.family = condition["key"], condition["family"]
        self.results = {
            n: r for n, run in enumerate(self.runs) if (r := run.result(self.key))
        }
        self.records = {n: self.runs[n].verdicts(self.key) for n in self.results}
        self.rows = {
            n: {s: i for i, s in enumerate(v.samples)} for n, v in self.records.items()
        }
        clean = self.runs[0].verdicts("clean")
        self.labels = dict(zip(clean.samples, clean.labels, strict=True))

    def state(self, n, sample):
        row = self.rows[n].get(sample)
        return None if row is None else outcome(self.records[n], row, self.results[n].kind)

    def first_radius(self, n, sample):
        for other in sorted(self.data["conditions"], key=lambda c: c["eps"]):
            if other["family"] == self.family and self.runs[n].result(other["key"]):
                verdicts = self.runs[n].verdicts(other["key"])
                row = verdicts.samples.index(sample)
                if outcome(verdicts, row, other["kind"]) == "broken":
                    return other["eps"]
        return None

    def has_radius(self, n, sample, radius):
        if radius == "never":
            never = self.first_radius(n, sample) is None
            return never and self.state(n, sample) != "misclassified"
        return self.first_radius(n, sample) == radius

    def disagrees(self, n, sample):
        other, good = self.filter["other"], ("robust", "certified")
        return any(
            self.state(m, sample) is not None
            and (self.state(m, sample) in good) != (self.state(n, sample) in good)
            for m in (self.records if other == -1 else [other])
        )

    def fits(self, n, sample):
        chosen, state = self.filter, self.state(n, sample)
        return (
            state is not None
            and chosen["outcome"] in (-1, OUTCOMES.index(state))
            and chosen["attack"] in ("", self.records[n].by[self.rows[n][sample]])
            and (chosen["radius"] is None or self.has_radius(n, sample, chosen["radius"]))
            and (chosen["other"] == -2 or self.disagrees(n, sample))
        )

    def result(self):
        label, run = self.filter["label"], self.filter["run"]
        tested = [n for n in self.records if run in (-1, n)]
        samples = [
            s
            for s in sorted(self.labels)
            if label in (-1, self.labels[s]) and any(self.fits(n, s) for n in tested)
        ]
        counts = []
        for n in self.records:
            states = Counter(self.state(n, s) or "not tested" for s in samples)
            counts.append([n, [states[name] for name in OUTCOMES]])
        first = min(self.records)
        rows, predictions = self.rows[first], self.records[first].predictions
        pairs = Counter(
            (self.labels[s], predictions[rows[s]]) for s in samples if s in rows
        )
        confusion = [[a, b, count] for (a, b), count in sorted(pairs.items())]
        return {"samples": samples, "counts": counts, "confusion": confusion}


def test_every_filter_selects_and_counts_what_the_records_say(page):
    _, data = page
    keys = [condition["key"] for condition in data["conditions"]]
    attack, clean, certificate = (
        keys.index(key) for key in ("standard_linf_0.1", "clean", "crown_linf_0.1")
    )
    assert attack == 0, "the headline comes first"
    filters = [{"condition": place} for place in range(len(keys))]
    filters += [
        {"condition": attack, "outcome": code, "run": n}
        for code in range(1, 5)
        for n in (-1, 0, 1)
    ]
    filters += [
        {"condition": attack, "attack": name, "label": 3} for name in ("fab", "apgd-ce")
    ]
    filters += [
        {"condition": attack, "radius": r, "run": n}
        for r in (*RADII, "never")
        for n in (-1, 0, 1)
    ]
    filters += [
        {"condition": attack, "other": m, "run": n} for m in (-1, 0, 1) for n in (-1, 0, 2)
    ]
    filters += [{"condition": clean, "other": -1, "label": 5, "outcome": 1}]
    filters += [{"condition": certificate, "outcome": code} for code in range(1, 6)]
    results = evaluate(CODE, {"data": data, "filters": filters})
    sizes = set()
    for filter_, result in zip(filters, results, strict=True):
        assert result == Definition(page, filter_).result(), filter_
        sizes.add(len(result["samples"]))
    assert len(sizes) > 20, "the filters differ"


def test_labels_that_do_not_agree_are_other_samples(maker):
    one, other = maker.run("a"), maker.run("b", norm="group")
    maker.tested(one, "clean", labels=[0, 1], predictions=[0, 1])
    maker.tested(other, "clean", labels=[0, 2], predictions=[0, 1])
    groups = load_groups([one, other])
    data = sample_data(groups, all_verdicts(groups), None)
    assert [each["size"] for each in data.values["sets"]] == [2, 2]
    values = json.loads(script_data(data.values))
    assert evaluate("new VerdictTable(values).runs(0)", values) == [0]


def test_parts_of_one_data_set_are_one_set_and_other_data_are_another(maker):
    runs = [maker.run(name, norm=name) for name in "abc"]
    names = ("digits[test=2,seed=0]", "digits[test=2,seed=1]", "mnist")
    for run, name, first in zip(runs, names, (0, 1, 0), strict=True):
        samples = [first, first + 1]
        labels = [5] * 2 if name == "mnist" else samples
        maker.tested(
            run, "clean", labels=labels, predictions=[0, 1], samples=samples, data=name
        )
    groups = load_groups(runs)
    sets = sample_data(groups, all_verdicts(groups), None).values["sets"]
    assert [(each["name"], each["size"]) for each in sets] == [("digits", 3), ("mnist", 2)]


def test_verdicts_that_do_not_fit_are_left_out_and_said(maker, monkeypatch):
    from advnorm.report import sample_data as module

    run = maker.run("a")
    for eps in (0.1, 0.2, 0.3):
        maker.random_verdicts(run, "standard", n=1000, seed=int(10 * eps), eps=eps)
    groups = load_groups([run])
    verdicts = all_verdicts(groups)
    whole = sum(
        len(part["data"])
        for record in sample_data(groups, verdicts, None).values["records"]
        for part in record.values()
        if isinstance(part, dict)
    )
    monkeypatch.setattr(module, "MOST_CHARACTERS", whole - 1)
    data = sample_data(groups, verdicts, "standard_linf_0.3")
    shown = [
        data.values["conditions"][r["condition"]]["eps"] for r in data.values["records"]
    ]
    assert shown == [0.3, 0.1]
    (note,) = data.notes
    assert note.startswith("The verdicts of 2 results are on this page; those of 1 more")
