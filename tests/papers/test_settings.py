"""Recipes at full against what their papers state."""

import pytest
import torch

from advnorm.papers import ARTEFACTS


def test_imagenet_is_cropped_once():
    """Its images are read as random parts of a random size: no padded crop after that."""
    found = {
        (name, job.row): job.recipe.data.augment
        for name in ARTEFACTS
        for job in ARTEFACTS[name].jobs("full")
        if job.recipe.data.name == "imagenet"
    }
    assert {name for name, _ in found} >= {"apart2022/table2", "xie2020/table7"}
    assert set(found.values()) == {"flip"}


@pytest.mark.parametrize("row", ["MAT-100", "MAT-100, BN"])
def test_half_of_a_loss_takes_the_steps_of_the_papers_sum(row):
    """sridhar2021: Eqn. 5 is a sum, at rate 0.05 and weight decay 5e-4 (B.1, B.2)."""
    jobs = {job.row: job.recipe for job in ARTEFACTS["sridhar2021/table3"].jobs("full")}
    own = jobs[row].optimizer
    assert jobs[row].objective.gamma == 0.5 and own.name == "sgd" and own.clip is None
    settings = {"lr": own.rate, "weight_decay": own.weight_decay}
    assert _descend(0.5, **settings, momentum=own.momentum) == _descend(
        1.0, lr=0.05, weight_decay=5e-4, momentum=0.9
    )


def _descend(weight: float, **settings: float) -> list[float]:
    """Return where three steps lead that begin at 1 and lower two quartics' weighted sum."""
    point = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([point], **settings)
    places = []
    for _ in range(3):
        optimizer.zero_grad()
        (weight * (point**4 + (point - 2) ** 4)).backward()
        optimizer.step()
        places.append(point.item())
    return places
