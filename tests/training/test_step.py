"""One step: what its random numbers depend on, dropout (also resumed), the loss scale."""

import os
import signal
from typing import ClassVar

import pytest
import torch
from torch import nn

from advnorm.attacks import pgd
from advnorm.progress import Quiet
from advnorm.recipe import override
from advnorm.training import step, train
from advnorm.training.build import build_experiment
from advnorm.training.state import State
from advnorm.training.step import Stepper


def first_batch(experiment):
    return next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )


def spied_draws(tiny, monkeypatch, state, changes=()):
    """Return the images that the objective sees and the attack's start, in one step."""
    experiment = build_experiment(
        override(tiny, ["data.augment=crop", *changes]), root=None, device="cpu"
    )
    stepper, seen = Stepper(experiment), {}

    def spying(*args, **settings):
        seen["start"] = pgd(*args, **{**settings, "steps": 0})
        return pgd(*args, **settings)

    monkeypatch.setattr(step, "pgd", spying)
    objective = stepper.objective

    def spy(model, clean, labels, adversary):
        seen["images"], seen["training"] = clean, model.training
        return objective(model, clean, labels, adversary)

    stepper.objective = spy
    stepper(first_batch(experiment), state)
    return seen


def test_augmentation_and_start_change_with_the_epoch_and_only_with_it(tiny, monkeypatch):
    one = spied_draws(tiny, monkeypatch, State())
    same = spied_draws(tiny, monkeypatch, State(step=7))
    other = spied_draws(tiny, monkeypatch, State(epoch=1))
    for what in ("images", "start"):
        assert torch.equal(one[what], same[what]) and not torch.equal(
            one[what], other[what]
        )
    assert one["training"], "dropout is on while a model is trained"


class Noisy(nn.Module):
    """A layer that draws from the global random state, as dropout does."""

    seen: ClassVar[list[float]] = []

    def forward(self, x):
        self.seen.append(torch.rand(()).item())
        return x


def test_dropout_is_seeded_by_the_step(tiny):
    def draw(state, seed=0):
        experiment = build_experiment(
            override(tiny, [f"seed={seed}"]), root=None, device="cpu"
        )
        experiment.model.append(Noisy())
        Noisy.seen = []
        torch.manual_seed(123)
        with torch.random.fork_rng():
            Stepper(experiment)(first_batch(experiment), state)
        return Noisy.seen[0]

    assert draw(State(step=3)) == draw(State(step=3))
    assert len({draw(State(step=3)), draw(State(step=4)), draw(State(step=3), seed=1)}) == 3


def test_the_loss_scale_grows_after_many_steady_steps(tiny, monkeypatch):
    monkeypatch.setattr(step, "GROWTH_STEPS", 3)
    experiment = build_experiment(
        override(tiny, ["precision=float16"]), root=None, device="cpu"
    )
    stepper, state = Stepper(experiment), State(scale=64.0)
    scales = []
    for _ in range(4):
        stepper(first_batch(experiment), state)
        scales.append(state.scale)
    assert scales == [64.0, 64.0, 128.0, 128.0]


class SignalAt(Quiet):
    def __init__(self, at):
        self.at = at

    def update(self, done, total, text):
        if done == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_network_with_dropout_and_channels_last_resumes_bitwise(
    tiny, tmp_path, fingerprint
):
    changes = [
        "data.size=16",
        "data.train=24",
        "batch_size=8",
        "model={name: wide_resnet, options: {depth: 10, widen: 1, dropout: 0.3}}",
        "attack.steps=1",
        "epochs=2",
        "channels_last=true",
        "validation={samples: 10, steps: 1}",
    ]
    recipe = override(tiny, changes)
    whole = train(recipe, tmp_path / "whole")
    from advnorm.training import StoppedError

    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "run", progress=SignalAt(2))
    assert fingerprint(train(recipe, tmp_path / "run", resume=True)) == fingerprint(whole)
