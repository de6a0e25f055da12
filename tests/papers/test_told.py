"""Records remember what runs gave, when the runs are gone."""

from dataclasses import replace
from math import nan
from shutil import rmtree

import pytest

from advnorm.papers import ARTEFACTS, Artefact, Job, Place, reproduce, where
from advnorm.papers.told import asked, tellable
from advnorm.recipe import Recipe, override
from advnorm.records import Told, read_reproduction

TINY = override(
    Recipe(),
    [
        "data={train: 60, test: 20}",
        "model.options={depth: 1, width: 4}",
        "objective.name=standard",
        "epochs=1",
        "batch_size=20",
        "validation={samples: 10, steps: 1}",
        "evaluation={attacks: [clean, fgsm], eps: [0.1]}",
    ],
)
NUMBERS = {"clean": "clean", "loss": "epoch/loss"}


@pytest.fixture
def tiny(monkeypatch):
    jobs = [
        Job("one", TINY, NUMBERS, {"weights": ()}),
        Job("two", override(TINY, ["norm.name=none"]), NUMBERS),
    ]
    entry = Artefact(
        "here/table1", "Tiny", lambda scale: jobs, {}, relative_to="one", shown=("weights",)
    )
    monkeypatch.setitem(ARTEFACTS._entries, entry.name, entry)
    return entry


def without_runs(folder):
    for name in ("runs", ".turns"):
        rmtree(folder / name)


def changed(monkeypatch, entry, *jobs):
    monkeypatch.setitem(
        ARTEFACTS._entries, entry.name, replace(entry, jobs=lambda _: list(jobs))
    )


def test_what_is_told_is_not_done_again(tiny, tmp_path):
    first = reproduce(tiny.name, Place(tmp_path), seeds=2)
    assert first.panels and len(first.told) == 4
    without_runs(tmp_path)
    again = reproduce(tiny.name, Place(tmp_path), seeds=2)
    assert again == first and not (tmp_path / "runs").exists()
    assert read_reproduction(where(tmp_path, tiny.name, "smoke")) == first


def test_seeds_and_rows_are_added_to_what_is_told(tiny, tmp_path):
    part = reproduce(tiny.name, Place(tmp_path), rows=["one"])
    without_runs(tmp_path)
    other = reproduce(tiny.name, Place(tmp_path), rows=["two"], seeds=2)
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert len(names) == 3 and not names & set(part.runs["one"]), "seed 0 of one is told"
    assert other.rows["one"]["clean"].values[0] == part.rows["one"]["clean"].values[0]
    without_runs(tmp_path)
    few = reproduce(tiny.name, Place(tmp_path))
    assert few.seeds == 1 and len(few.rows["two"]["loss"].values) == 1
    assert len(few.told) == 4, "what is known of other seeds is kept"
    assert reproduce(tiny.name, Place(tmp_path), seeds=2) == other


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": override(TINY, ["optimizer.rate=0.02"])},
        {
            "recipe": override(TINY, ["evaluation.eps=[0.2]"]),
            "numbers": {"clean": "fgsm_linf_0.1"},
        },
        {"recipe": override(TINY, ["evaluation.samples=10"])},
        {"numbers": {"clean": "fgsm_linf_0.1"}},
        {"questions": {"weights": (), "dead": ()}},
        {"samples": 100},
        {"evaluations": ((), ("eps=[0.2]",))},
        {"targets": {"other": TINY}},
    ],
    ids=str,
)
def test_what_is_asked_otherwise_is_another_job(change):
    job = Job("one", TINY, NUMBERS, {"weights": ()})
    assert asked(replace(job, **change)) != asked(job)
    assert asked(replace(job, row="another name")) == asked(job)


def test_a_changed_job_is_done_and_the_old_numbers_go(tiny, tmp_path, monkeypatch):
    first = reproduce(tiny.name, Place(tmp_path))
    without_runs(tmp_path)
    one, two = tiny.jobs("smoke")
    slow = replace(two, recipe=override(two.recipe, ["optimizer.rate=0.001"]))
    changed(monkeypatch, tiny, one, slow)
    record = reproduce(tiny.name, Place(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert record.rows["two"] != first.rows["two"] and len(record.told) == 2


def test_numbers_of_other_data_are_not_taken(tiny, tmp_path):
    reproduce(tiny.name, Place(tmp_path))
    without_runs(tmp_path)
    path = where(tmp_path, tiny.name, "smoke")
    record = read_reproduction(path)
    other = tuple(one.model_copy(update={"run": "0" * 16}) for one in record.told)
    path.write_text(record.model_copy(update={"told": other}).model_dump_json())
    again = reproduce(tiny.name, Place(tmp_path))
    assert len(list((tmp_path / "runs").iterdir())) == 2 and again.rows == record.rows


def test_a_run_that_is_there_is_asked_itself(tiny, tmp_path):
    reproduce(tiny.name, Place(tmp_path))
    path = where(tmp_path, tiny.name, "smoke")
    record = read_reproduction(path)
    wrong = tuple(
        one.model_copy(update={"numbers": dict.fromkeys(NUMBERS, -1.0)})
        for one in record.told
    )
    path.write_text(record.model_copy(update={"told": wrong}).model_dump_json())
    again = reproduce(tiny.name, Place(tmp_path))
    assert again.rows == record.rows and again.panels == record.panels


def test_a_number_that_is_none_is_not_told():
    one = Told(row="a", seed=0, asked="", run="", numbers={"x": 1.0}, seconds=0.0)
    assert tellable([one, one.model_copy(update={"numbers": {"x": nan}})]) == (one,)
