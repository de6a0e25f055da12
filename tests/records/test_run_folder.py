"""The run folder: who may write to it, and where its files go."""

import shutil

import pytest

from advnorm.records import Accuracy, Environment, Result, Run, RunLostError
from advnorm.records import run as run_module

HERE = Environment.here(device="cpu", threads=1)


def clean_result(**changes):
    return Result.model_validate(
        {
            "condition": "clean",
            "kind": "clean",
            "accuracy": Accuracy(correct=1, n=2),
            "data": "digits",
            "weights": "best",
            "seed": 0,
            "seconds": 0.0,
            **changes,
        }
    )


def test_a_run_that_another_process_begins_at_the_same_moment_is_kept(
    tmp_path, monkeypatch
):
    """Between the check for a run and the first file of one, another process makes it."""
    original = run_module.locked

    def late(path, **options):
        monkeypatch.undo()
        Run.create(path.parent, "name: theirs\n", HERE)
        return original(path, **options)

    monkeypatch.setattr(run_module, "locked", late)
    with pytest.raises(FileExistsError, match="already holds a run"):
        Run.create(tmp_path / "run", "name: ours\n", HERE)
    assert Run.open(tmp_path / "run").recipe_text() == "name: theirs\n"


def test_a_record_that_is_written_without_the_lock_needs_a_run_folder(tmp_path):
    run = Run.create(tmp_path / "run", "{}\n", HERE)
    shutil.rmtree(run.path)
    with pytest.raises(RunLostError):
        run.write_result(clean_result())


def test_a_result_that_names_a_path_is_written_into_its_folder(tmp_path):
    run = Run.create(tmp_path / "run", "{}\n", HERE)
    threat = {"norm": "../../../b", "eps": 0.1}
    run.write_result(clean_result(condition="../../a", kind="attack", threat=threat))
    (written,) = (run.path / "results").glob("*.json")
    assert written.name == "..of..ofa_..of..of..ofb_0.1.json"
