"""From an evaluation to the attack there are few calls, and the same ones in validation."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import advnorm
from advnorm.attacks import ATTACKS, AttackEntry, pgd
from advnorm.recipe import Recipe, override
from advnorm.runs import evaluate_run
from advnorm.training import train

PACKAGE = str(Path(advnorm.__file__).parent)


@pytest.fixture
def callers(monkeypatch):
    """Return the package's functions that are active when PGD is called, innermost last."""
    seen = []

    def spy(*args, steps, step_size, draws, **settings):
        frame, names = sys._getframe(1), []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                names.append(frame.f_code.co_name)
            frame = frame.f_back
        seen.append(names[::-1])
        return pgd(*args, steps=steps, step_size=step_size, draws=draws, **settings)

    entry = AttackEntry("pgd", spy, "PGD")
    monkeypatch.setitem(ATTACKS._entries, "pgd", entry)
    return seen


def test_from_a_run_to_pgd_there_are_at_most_six_calls(callers, tmp_path):
    changes = ["data.train=96", "data.test=40", "epochs=1", "attack.steps=1"]
    changes += ["model.options={depth: 1, width: 4}", "validation.samples=4"]
    changes += ["evaluation={conditions: [pgd-2], threat: {eps: [0.1]}}"]
    recipe = override(Recipe(), changes)
    run = train(recipe, tmp_path / "run")
    callers.clear()
    evaluate_run(run, recipe)
    names = callers[0]
    way = names[names.index("evaluate_run") :]
    assert way[-2:] == ["run_condition", "run"] and len(way) <= 6, way


def test_from_python_to_pgd_there_are_at_most_six_calls(callers):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    images = torch.rand(3, 1, 2, 2)
    labels = model(images).argmax(1)
    advnorm.evaluate(model, images, labels, advnorm.Linf(1e-3), conditions=["pgd-2"])
    (names,) = callers
    way = names[names.index("evaluate") :]
    assert way[-2:] == ["run_condition", "run"] and len(way) <= 6, way
