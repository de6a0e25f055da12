"""Optimizers: their options, and RMSprop against its equation."""

import pytest
import torch
from torch import nn

from advnorm.recipe import override
from advnorm.training import checkpoints, train
from advnorm.training.components import build_optimizer


def newest(run, kind="state"):
    return checkpoints.load(run.checkpoints, kind, warnings=[])


def test_nesterov_reaches_the_optimizer(tiny):
    for value in (True, False):
        recipe = override(tiny, [f"optimizer.nesterov={str(value).lower()}"])
        optimizer = build_optimizer(recipe, nn.Linear(2, 2))
        assert (
            optimizer.defaults["nesterov"] is value
            and optimizer.defaults["momentum"] == 0.9
        )


def test_rmsprop_takes_the_step_of_its_equation(tiny):
    """In turn: v = 0.9 v + 0.1 g^2; m = 0.5 m + g / (sqrt(v) + 1); w -= lr m."""
    recipe = override(tiny, ["optimizer={name: rmsprop, lr: 0.1, momentum: 0.5}"])
    layer = nn.Linear(1, 1, bias=False).double()
    optimizer, w = build_optimizer(recipe, layer), layer.weight.item()
    v = m = 0.0
    for g in (2.0, -1.0, 0.5):
        layer.weight.grad = torch.full_like(layer.weight, g)
        optimizer.step()
        v = 0.9 * v + 0.1 * g * g
        m = 0.5 * m + g / (v**0.5 + 1)
        w -= 0.1 * m
        assert layer.weight.item() == pytest.approx(w, rel=1e-12)


def test_rmsprop_goes_on_where_it_stopped(tiny, tmp_path):
    changes = ["epochs=2", "optimizer={name: rmsprop, lr: 0.01}", "attack.steps=1"]
    whole = train(override(tiny, changes), tmp_path / "whole")
    train(override(tiny, [*changes, "epochs=1"]), tmp_path / "part")
    recipe = tmp_path / "part" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 1", "epochs: 2"))
    part = train(override(tiny, changes), tmp_path / "part", resume=True)
    assert [e.loss for e in part.epochs()] == [e.loss for e in whole.epochs()]
