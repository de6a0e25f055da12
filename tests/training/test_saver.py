"""When checkpoints are written, and what is not saved."""

import pytest
import torch

from advnorm.recipe import override
from advnorm.records import Run
from advnorm.training import NotFiniteError, checkpoints, train
from advnorm.training.build import build_experiment
from advnorm.training.saver import Saver
from advnorm.training.state import State


def newest(run, kind="state"):
    return checkpoints.load(run.checkpoints, kind, warnings=[])


def test_a_checkpoint_is_due_after_its_time_and_then_not_again_at_once(
    tiny, tmp_path, monkeypatch
):
    from advnorm.training import saver as module

    clock = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    saver = Saver(build_experiment(tiny, root=None, device="cpu"), run)
    saves = []
    monkeypatch.setattr(
        saver, "save", lambda state: (saves.append(clock[0]), Saver.save(saver, state))
    )
    for clock[0] in (59.0, 61.0, 100.0, 122.0):
        saver.save_if_due(State(step=9))
    assert saves == [61.0, 122.0]


def test_a_kill_between_metrics_and_checkpoint_repeats_no_epoch(
    tiny, tmp_path, fingerprint
):
    run = train(tiny, tmp_path / "run")
    before = fingerprint(run)
    for path in run.checkpoints.glob("state-00000009*"):
        path.unlink()  # as if killed after the last line was written
    assert fingerprint(train(tiny, tmp_path / "run", resume=True)) == before


def test_numbers_that_are_not_finite_are_not_saved(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(
        torch.optim.SGD,
        "step",
        lambda self: [
            p.data.fill_(torch.nan) for g in self.param_groups for p in g["params"]
        ],
    )
    with pytest.raises(NotFiniteError, match=r"was not saved.*state-00000000"):
        train(override(tiny, ["checkpoint_seconds=1e-9"]), tmp_path / "run")
    assert newest(Run(tmp_path / "run")).facts["state"]["step"] == 0
