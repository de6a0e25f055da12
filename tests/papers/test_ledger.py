"""Records remember what runs gave, when the runs are gone."""

import json
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from math import isnan, nan
from shutil import rmtree

import pytest
from tiny_recipe import TINY

from advnorm.diagnosis import REVISIONS
from advnorm.papers import ARTEFACTS, Artefact, Job, Workspace, record_path, reproduce
from advnorm.papers.ledger import job_fingerprint
from advnorm.papers.numbers import CLEAN, EpochNumber, ResultNumber
from advnorm.recipe import EvaluationSpec, EvaluationThreatSpec, override
from advnorm.records import LedgerEntry, read_reproduction, reproductions
from advnorm.studies.defaults import default_settings, same_defaults

module = import_module("advnorm.papers.reproduce")
ledger_module = import_module("advnorm.papers.ledger")
NUMBERS = {"clean": CLEAN, "loss": EpochNumber("loss")}
FGSM = ResultNumber("fgsm", eps=0.1)


@pytest.fixture
def tiny(monkeypatch):
    jobs = [
        Job("one", TINY, NUMBERS, {"weights": {}}),
        Job("two", override(TINY, ["norm.name=none"]), NUMBERS),
    ]
    entry = Artefact(
        "here/table1", "Tiny", lambda scale: jobs, {}, relative_to="one", shown=("weights",)
    )
    monkeypatch.setitem(ARTEFACTS._entries, entry.name, entry)
    return entry


def without_runs(folder):
    for name in ("runs", ".locks"):
        rmtree(folder / name, ignore_errors=True)


def changed(monkeypatch, entry, *jobs):
    monkeypatch.setitem(
        ARTEFACTS._entries, entry.name, replace(entry, jobs=lambda _: list(jobs))
    )


def test_a_line_names_the_machine_that_trained_its_run(tiny, tmp_path):
    here = reproduce(tiny.name, Workspace(tmp_path)).machine
    first = next((tmp_path / "runs").glob("*/environment.json"))
    environment = json.loads(first.read_text())
    first.write_text(
        json.dumps(environment | {"processor": "an abacus", "device": "cuda:1"})
    )
    record = reproduce(tiny.name, Workspace(tmp_path))
    there = (
        f"cuda:1, {environment['cores']} cores of an abacus, torch {environment['torch']}"
    )
    assert {one.machine for one in record.entries} == {here, there}
    assert sorted(record.machine.split("; ")) == sorted([here, there])


def test_what_is_told_is_not_done_again(tiny, tmp_path):
    first = reproduce(tiny.name, Workspace(tmp_path), seeds=2)
    assert first.drawn and len(first.entries) == 4
    assert reproductions(tmp_path) == ({"here": [first]}, {}), (
        "no other file is taken for a record"
    )
    without_runs(tmp_path)
    again = reproduce(tiny.name, Workspace(tmp_path), seeds=2)
    assert again == first and not (tmp_path / "runs").exists()
    assert read_reproduction(record_path(tmp_path, tiny.name, "smoke")) == first


def test_seeds_and_rows_are_added_to_what_is_told(tiny, tmp_path):
    part = reproduce(tiny.name, Workspace(tmp_path), rows=["one"])
    without_runs(tmp_path)
    other = reproduce(tiny.name, Workspace(tmp_path), rows=["two"], seeds=2)
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert len(names) == 3 and not names & set(part.runs["one"]), (
        "seed 0 of one is in the ledger"
    )
    assert other.rows["one"]["clean"].values[0] == part.rows["one"]["clean"].values[0]
    without_runs(tmp_path)
    assert reproduce(tiny.name, Workspace(tmp_path)) == other, (
        "seeds stay that are in the ledger"
    )
    assert other.seeds == 2 and len(other.rows["two"]["loss"].values) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": override(TINY, ["optimizer.lr=0.02"])},
        {
            "recipe": override(TINY, ["evaluation.threat.eps=[0.2]"]),
            "numbers": {"clean": FGSM},
        },
        {"recipe": override(TINY, ["evaluation.samples=10"])},
        {"numbers": {"clean": FGSM}},
        {"questions": {"weights": {}, "dead": {}}},
        {"questions": {"weights": {"count": 3}}},
        {"samples": 100},
        {
            "evaluations": (
                EvaluationSpec(),
                EvaluationSpec(threat=EvaluationThreatSpec(eps=(0.2,))),
            )
        },
        {"targets": {"other": TINY}},
    ],
    ids=str,
)
def test_what_is_asked_otherwise_is_another_job(change):
    job = Job("one", TINY, NUMBERS, {"weights": {}})
    assert job_fingerprint(replace(job, **change)) != job_fingerprint(job)
    assert job_fingerprint(replace(job, row="another name")) == job_fingerprint(job)


def test_a_changed_job_is_done_and_the_old_numbers_go(tiny, tmp_path, monkeypatch):
    first = reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    one, two = tiny.jobs("smoke")
    slow = replace(two, recipe=override(two.recipe, ["optimizer.lr=0.001"]))
    changed(monkeypatch, tiny, one, slow)
    record = reproduce(tiny.name, Workspace(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert record.rows["two"] != first.rows["two"] and len(record.entries) == 2


def test_numbers_of_other_data_are_not_taken(tiny, tmp_path):
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    path = record_path(tmp_path, tiny.name, "smoke")
    record = read_reproduction(path)
    other = tuple(one.model_copy(update={"run": "0" * 16}) for one in record.entries)
    path.write_text(record.model_copy(update={"entries": other}).model_dump_json())
    again = reproduce(tiny.name, Workspace(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 2 and again.rows == record.rows


def test_a_run_that_is_there_is_asked_itself(tiny, tmp_path):
    reproduce(tiny.name, Workspace(tmp_path))
    path = record_path(tmp_path, tiny.name, "smoke")
    record = read_reproduction(path)
    wrong = tuple(
        one.model_copy(update={"numbers": dict.fromkeys(NUMBERS, -1.0)})
        for one in record.entries
    )
    path.write_text(record.model_copy(update={"entries": wrong}).model_dump_json())
    again = reproduce(tiny.name, Workspace(tmp_path))
    assert again.rows == record.rows and again.drawn == record.drawn


def test_panels_are_those_of_their_jobs_however_often(tiny, tmp_path, monkeypatch):
    one, two = tiny.jobs("smoke")
    wide = replace(one, recipe=override(one.recipe, ["model.options.width=5"]))
    wide = replace(wide, numbers={"other": CLEAN})
    changed(monkeypatch, tiny, one, wide, two)
    first = reproduce(tiny.name, Workspace(tmp_path))
    assert len(first.drawn) == 4 and all(p.title.startswith("one: ") for p in first.drawn)
    for _ in range(2):
        without_runs(tmp_path)
        assert reproduce(tiny.name, Workspace(tmp_path)) == first
    assert not first.panels, "each is kept once"


def test_panels_outlive_a_failure(tiny, tmp_path):
    first = reproduce(tiny.name, Workspace(tmp_path))
    (tmp_path / "runs" / first.runs["one"][0] / "recipe.yaml").write_text("seed: [")
    record = reproduce(tiny.name, Workspace(tmp_path))
    assert set(record.failed) == {"one, seed 0"} and "one" not in record.rows
    without_runs(tmp_path)
    again = reproduce(tiny.name, Workspace(tmp_path))
    assert again.rows == first.rows and again.drawn == first.drawn


def test_an_older_record_is_not_replaced_by_some_rows(tiny, tmp_path):
    first = reproduce(tiny.name, Workspace(tmp_path))
    path = record_path(tmp_path, tiny.name, "smoke")
    path.write_text(
        first.model_copy(update={"entries": (), "defaults": {}}).model_dump_json()
    )
    with pytest.raises(ValueError, match="its rows one would be lost"):
        reproduce(tiny.name, Workspace(tmp_path), rows=["two"])
    assert set(reproduce(tiny.name, Workspace(tmp_path)).rows) == {"one", "two"}


def test_other_defaults_make_other_numbers(tiny, tmp_path):
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    path = record_path(tmp_path, tiny.name, "smoke")
    record = read_reproduction(path)
    new = {
        key: dict(value) if isinstance(value, dict) else value
        for key, value in record.defaults.items()
    }
    del new["data"]["mixup"]  # a setting that there was not
    path.write_text(record.model_copy(update={"defaults": new}).model_dump_json())
    assert reproduce(tiny.name, Workspace(tmp_path)).rows == record.rows
    assert not (tmp_path / "runs").exists()
    new["optimizer"]["momentum"] = 0.123
    path.write_text(record.model_copy(update={"defaults": new}).model_dump_json())
    reproduce(tiny.name, Workspace(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_two_processes_keep_what_the_other_told(tiny, tmp_path, monkeypatch):
    """The second is a call in the middle of the first, which began with no record."""
    real, calls = module.run_tasks, []

    def fewer(work, tasks, on):
        if not calls:
            calls.append(1)
            reproduce(tiny.name, Workspace(tmp_path), rows=["two"], seeds=2)
            without_runs(tmp_path)
        return real(work, tasks, on=on)

    monkeypatch.setattr(module, "run_tasks", fewer)
    record = reproduce(tiny.name, Workspace(tmp_path), rows=["one"])
    assert set(record.rows) == {"one", "two"} and len(record.entries) == 4


def of_other_defaults(folder, entry):
    """Rewrite a record as if it had been made with other defaults of the optimizer."""
    path = record_path(folder, entry.name, "smoke")
    record = read_reproduction(path)
    before = dict(record.defaults)
    before["optimizer"] = {**before["optimizer"], "momentum": 0.123}
    path.write_text(record.model_copy(update={"defaults": before}).model_dump_json())


def test_two_processes_replace_what_is_no_longer_true(tiny, tmp_path, monkeypatch):
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    of_other_defaults(tmp_path, tiny)
    real, calls = module.run_tasks, []

    def fewer(work, tasks, on):
        calls.append(1)
        if len(calls) > 1:  # the second process, in the middle of the first
            return real(work, tasks, on=on)
        reproduce(tiny.name, Workspace(tmp_path))
        without_runs(tmp_path)
        return real(work, tasks[:1], on=on)

    monkeypatch.setattr(module, "run_tasks", fewer)
    assert set(reproduce(tiny.name, Workspace(tmp_path)).rows) == {"one", "two"}


def test_rows_of_other_defaults_are_not_lost_in_silence(tiny, tmp_path):
    reproduce(tiny.name, Workspace(tmp_path))
    of_other_defaults(tmp_path, tiny)
    with pytest.raises(ValueError, match="its rows one would be lost"):
        reproduce(tiny.name, Workspace(tmp_path), rows=["two"])


@pytest.mark.parametrize(
    ("path", "value", "done_again"),
    [
        (("checkpoint_seconds",), 61.0, False),
        (("name",), "another", False),
        (("data", "workers"), 9, False),
        (("data", "name"), "mnist", True),
        (("schedules", "Piecewise", "factor"), 0.5, True),
        (("questions", "weights", "revision"), 7, True),
        (("questions", "hessian", "revision"), 7, False),  # it is not asked
        (("optimizer",), None, True),
        (("norm", "options"), {"gone": 1}, True),
    ],
    ids=str,
)
def test_defaults_that_decide_numbers_do_so(tiny, tmp_path, path, value, done_again):
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    file = record_path(tmp_path, tiny.name, "smoke")
    record = read_reproduction(file)
    before = deepcopy(record.defaults)
    inner = before
    for name in path[:-1]:
        inner = inner[name]
    assert path[-1] in inner
    inner[path[-1]] = value
    file.write_text(record.model_copy(update={"defaults": before}).model_dump_json())
    reproduce(tiny.name, Workspace(tmp_path))
    assert (tmp_path / "runs").exists() is done_again


def test_a_default_may_become_nothing():
    now = default_settings()
    assert same_defaults(now, now, ()) and not same_defaults(
        now, {**now, "optimizer": None}, ()
    )


def test_an_answer_of_before_is_not_one_of_now(tiny, tmp_path, monkeypatch):
    reproduce(tiny.name, Workspace(tmp_path))
    answers = list(tmp_path.glob("runs/*/answers/*.json"))
    monkeypatch.setitem(REVISIONS, "weights", REVISIONS.get("weights", 1) + 1)
    reproduce(tiny.name, Workspace(tmp_path))
    assert len(list(tmp_path.glob("runs/*/answers/*.json"))) == len(answers) + 1


def test_columns_stay_in_the_order_of_the_jobs(tiny, tmp_path, monkeypatch):
    def jobs(rate):
        rates = {"1": 0.1, "2": rate, "3": 0.3}
        return [
            Job("one", override(TINY, [f"optimizer.lr={one}"]), {column: CLEAN})
            for column, one in rates.items()
        ]

    changed(monkeypatch, tiny, *jobs(0.2))
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    changed(monkeypatch, tiny, *jobs(0.25))
    assert reproduce(tiny.name, Workspace(tmp_path)).columns == ("1", "2", "3")


def test_only_the_data_of_what_is_asked_for_are_read(tiny, tmp_path, monkeypatch):
    reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)
    real, read = ledger_module.load_data, []

    def load(recipe, root):
        read.append(recipe.norm.name)
        return real(recipe, root=root)

    monkeypatch.setattr(ledger_module, "load_data", load)
    reproduce(tiny.name, Workspace(tmp_path), rows=["one"])
    assert read == ["batch"]


def test_data_that_cannot_be_read_do_not_stop_what_is_told(tiny, tmp_path, monkeypatch):
    first = reproduce(tiny.name, Workspace(tmp_path))
    without_runs(tmp_path)

    def damaged(recipe, root):
        raise ValueError("damaged")

    monkeypatch.setattr(ledger_module, "load_data", damaged)
    assert reproduce(tiny.name, Workspace(tmp_path)) == first


def test_the_machine_is_that_of_the_runs(tiny, tmp_path, monkeypatch):
    first = reproduce(tiny.name, Workspace(tmp_path), rows=["one"])
    without_runs(tmp_path)
    monkeypatch.setattr("advnorm.records.environment._processor", lambda: "another")
    assert reproduce(tiny.name, Workspace(tmp_path), rows=["one"]).machine == first.machine
    one, other = reproduce(tiny.name, Workspace(tmp_path)).machine.split("; ")
    assert one == first.machine and "cores of another, torch" in other


def test_a_diverged_run_is_told_too():
    one = LedgerEntry(
        row="a", seed=0, fingerprint="", run="", numbers={"x": nan}, seconds=0.0
    )
    assert isnan(LedgerEntry.model_validate_json(one.model_dump_json()).numbers["x"])
