"""A study goes on from a kept record where the folders of its runs are gone."""

import json
import shutil

import pytest

from advnorm.recipe import DataSpec, EvaluationSpec, ValidationSpec
from advnorm.recipes import find
from advnorm.records import Study
from advnorm.studies import run_study
from advnorm.studies.combinations import texts_of
from advnorm.studies.grid import Workspace

OVER = texts_of({"norm.name": ["batch", "none"]})


@pytest.fixture
def tiny():
    return find("digits.pgd").replace(
        data=DataSpec(train=100, test=30),
        epochs=1,
        batch_size=32,
        validation=ValidationSpec(samples=20, steps=1),
        evaluation=EvaluationSpec(conditions=("clean", "pgd-2")),
    )


def without_time(record: Study):
    """Return a record without what a clock decides."""
    values = json.loads(record.model_dump_json(exclude={"seconds", "machine"}))
    for row in values["rows"].values():
        del row["numbers"]["training minutes"]
    return values


def run_count(folder) -> int:
    return len(list(folder.glob("runs/*")))


def test_only_new_seeds_are_trained_and_the_record_is_that_of_all(tiny, tmp_path):
    earlier = run_study(tiny, OVER, Workspace(tmp_path / "a"), seeds=2)
    shutil.rmtree(tmp_path / "a")
    record = run_study(tiny, OVER, Workspace(tmp_path / "b"), seeds=3, earlier=earlier)
    assert run_count(tmp_path / "b") == 2  # the third seed of two norms
    anew = run_study(tiny, OVER, Workspace(tmp_path / "c"), seeds=3)
    assert run_count(tmp_path / "c") == 6
    assert without_time(record) == without_time(anew)


def test_fewer_seeds_than_the_earlier_record_has(tiny, tmp_path):
    earlier = run_study(tiny, OVER, Workspace(tmp_path / "a"), seeds=2)
    record = run_study(tiny, OVER, Workspace(tmp_path / "b"), seeds=1, earlier=earlier)
    assert run_count(tmp_path / "b") == 0
    assert {row.seeds for row in record.rows.values()} == {(0,)}


@pytest.mark.parametrize(
    "change",
    [
        {"evaluation": EvaluationSpec(conditions=("clean", "pgd-3"))},
        {"epochs": 2},
        {"data": DataSpec(train=120, test=30)},
        {"data": DataSpec(train=100, test=31)},
    ],
    ids=["evaluation", "epochs", "training data", "test data"],
)
def test_runs_of_another_study_are_made_again(tiny, tmp_path, change):
    earlier = run_study(tiny, OVER, Workspace(tmp_path / "a"), seeds=1)
    other = tiny.replace(**change)
    run_study(other, OVER, Workspace(tmp_path / "b"), seeds=1, earlier=earlier)
    assert run_count(tmp_path / "b") == 2


def test_a_record_that_does_not_say_how_it_tested_is_not_believed(tiny, tmp_path):
    earlier = run_study(tiny, OVER, Workspace(tmp_path / "a"), seeds=1)
    silent = earlier.model_copy(update={"evaluation": ""})
    run_study(tiny, OVER, Workspace(tmp_path / "b"), seeds=1, earlier=silent)
    assert run_count(tmp_path / "b") == 2
