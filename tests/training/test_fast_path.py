"""The attack of a step passes through the folded model; the training is the same."""

import os
import signal

import pytest
import torch

from advnorm.progress import Quiet
from advnorm.recipe import override
from advnorm.training import StoppedError, build_experiment, step, train
from advnorm.training.state import State
from advnorm.training.step import Stepper


class SignalAt(Quiet):
    """Stops the training after a number of steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def update(self, done: int, total: int, text: str) -> None:
        if done == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


CASES = {
    "cnn": ["model={name: cnn_small, options: {width: 2}}", "data.size=16"],
    "mixture": ["norm.name=mixture", "objective.name=mixed"],
    "residual": ["model={name: wide_resnet, options: {depth: 10, widen: 1}}"],
    "apart": ["gradient.name=apart", "norm.name=affine", "objective.name=mixed"],
}


def steps_of(recipe, count=20):
    experiment = build_experiment(recipe, root=None, device="cpu")
    stepper, state = Stepper(experiment), State()
    order, losses = torch.arange(len(experiment.data.train)), []
    while len(losses) < count:
        for batch in experiment.data.train.batches(
            order, batch_size=experiment.batch_size, device=experiment.device, epoch=0
        ):
            losses.append(stepper(batch, state).loss)
            state.step += 1
    return experiment.model.state_dict(), losses[:count]


@pytest.mark.parametrize("case", CASES)
def test_folding_does_not_change_training(tiny, monkeypatch, case):
    recipe = override(tiny, ["precision=float64", "attack.steps=3", *CASES[case]])
    used, fast_logits = [], step.fast_logits

    def recorded(*args):
        used.append(fast_logits(*args))
        return used[-1]

    monkeypatch.setattr(step, "fast_logits", recorded)
    folded, losses = steps_of(recipe)
    assert len(used) >= 20 and None not in used
    monkeypatch.setattr(step, "fast_logits", lambda *_: None)
    plain, others = steps_of(recipe)
    assert losses == pytest.approx(others, abs=1e-9)
    for name, value in plain.items():
        torch.testing.assert_close(folded[name], value, rtol=0, atol=1e-9)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("of_training", ["float32", "bfloat16"])
def test_resumes_bitwise_in_each_precision(
    tiny, tmp_path, fingerprint, precision, of_training
):
    changes = [
        "epochs=2",
        f"attack.precision={precision}",
        f"precision={of_training}",
        "model={name: cnn_small, options: {width: 2}}",
        "data.size=16",
    ]
    recipe = override(tiny, changes)
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "stopped", progress=SignalAt(2))
    resumed = train(recipe, tmp_path / "stopped", resume=True)
    assert fingerprint(resumed) == fingerprint(whole)


def test_bfloat16_attacks_leave_gradients_and_statistics_in_single_precision(tiny):
    runs = [
        steps_of(override(tiny, ["norm.name=batch", f"attack.precision={precision}"]), 2)
        for precision in ("float32", "bfloat16")
    ]
    (exact, first), (half, other) = runs
    assert all(t.dtype == exact[n].dtype for n, t in half.items())
    assert first != other
    assert first == pytest.approx(other, rel=0.1)
