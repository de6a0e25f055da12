"""Attacks on whole batches: linear models with batch norm, whose worst case is known."""

from itertools import product

import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.attacks import NonFiniteGradientError
from advnorm.attacks.whole_batch import (
    OBJECTIVES,
    AttackedBatch,
    total_cross_entropy,
    total_lead,
    whole_batch_pgd,
)
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

WIDE = (-10.0, 10.0)


class Above(nn.Module):
    """Class 1 where a feature is above the batch's mean, or its median."""

    def __init__(self, kind=norms.BatchNorm):
        super().__init__()
        self.norm = kind(1, affine=False).double()

    def forward(self, x):
        z = self.norm(x)
        return torch.cat([-z, z], 1)


def attack(model, batch, threat, objective=total_lead, clean_start=1.0, seed=0):
    steps = 40
    with norms.mode(model, "batch"):
        return whole_batch_pgd(
            model,
            batch,
            threat,
            steps=steps,
            step_size=2.5 * threat.eps / steps,
            objective=objective,
            draws=Draws.of(seed, torch.arange(len(batch.images))),
            clean_start=clean_start,
        )


def right_rows(model, x, batch):
    with norms.mode(model, "batch"):
        return (model(x).argmax(1) == batch.labels)[batch.counted]


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("eps", [1.5, 3.5, 6.5])
def test_a_malicious_row_moves_the_mean_past_the_rows_of_the_closed_form(objective, eps):
    """Eight rows above the mean; row 9 can raise it by eps / 10, past x_i < mu + eps / 10."""
    rows = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, -3.6, 0.0]
    rows = torch.tensor(rows, dtype=torch.float64)
    batch = AttackedBatch(
        images=rows[:, None],
        labels=torch.tensor([1] * 8 + [0, 0]),
        moved=torch.tensor([9]),
        counted=torch.arange(8),
    )
    assert rows.mean() == pytest.approx(0.0)
    x = attack(Above(), batch, Linf(eps, WIDE), objective)
    assert 0 < x[9, 0] <= eps
    expected = rows[:8] > eps / 10
    assert torch.equal(right_rows(Above(), x, batch), expected)
    assert torch.equal(x[:9], batch.images[:9])  # bit by bit


def test_a_malicious_row_cannot_move_a_median_past_the_next_value():
    """The median's gradient does not even get there, and that of the mean does."""
    rows = [[-0.2], [0.0], [0.1], [0.4], [0.5], [-1.0], [-0.3]]
    rows = torch.tensor(rows, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 1, 1, 0, 0])
    batch = AttackedBatch(rows, labels, torch.tensor([6]), torch.arange(2, 5))
    median, mean, threat = Above(norms.MedianNorm), Above(), Linf(6.0, WIDE)
    by_mean, by_median = (attack(model, batch, threat) for model in (mean, median))
    assert not right_rows(mean, by_mean, batch).any()
    assert right_rows(median, by_mean, batch).tolist() == [False, True, True]  # 0.1 ties
    assert right_rows(median, by_median, batch).all()


@pytest.mark.parametrize("seed", range(6))
def test_two_malicious_rows_do_what_an_exhaustive_search_does(seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(1, 3), norms.BatchNorm(3), nn.Linear(3, 3)).double()
    rows = torch.rand(8, 1, generator=generator).double()
    with norms.mode(model, "batch"):
        labels = model(rows).argmax(1)
    moved, counted = torch.tensor([2, 5]), torch.tensor([0, 1, 3, 4, 6, 7])
    batch, threat = AttackedBatch(rows, labels, moved, counted), Linf(0.4)
    fewest = len(counted)
    grid = torch.linspace(-0.4, 0.4, 41).double()
    for a, b in product(grid, grid):
        change = torch.stack([a, b])[:, None]
        x = threat.project(rows[moved] + change, rows[moved])
        fewest = min(fewest, int(right_rows(model, batch.with_moved(x), batch).sum()))
    results = [
        attack(model, batch, threat, objective, 0.0, start)
        for objective in OBJECTIVES.values()
        for start in range(12)
    ]
    assert min(int(right_rows(model, x, batch).sum()) for x in results) == fewest


@pytest.mark.parametrize("threat", [Linf(3, WIDE), L2(6, WIDE)], ids=lambda t: t.name)
@pytest.mark.parametrize("clean_start", [0.0, 1.0])
def test_the_moved_rows_stay_in_the_ball_and_the_others_as_they_are(threat, clean_start):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), norms.BatchNorm(5), nn.Linear(5, 3))
    images, moved = torch.rand(12, 4), torch.tensor([1, 4, 7])
    before, labels = images.clone(), torch.arange(12) % 3
    batch = AttackedBatch(images, labels, moved, torch.tensor([0, 2, 3, 5]))
    x = attack(model, batch, threat, clean_start=clean_start)
    others = torch.ones(12, dtype=torch.bool)
    others[moved] = False
    assert torch.equal(images, before) and torch.equal(x[others], before[others])
    assert threat.contains(x[moved], images[moved]).all()
    assert not torch.equal(x[moved], images[moved])


def search(logits_fn, batch, eps, step_size, objective):
    return whole_batch_pgd(
        logits_fn,
        batch,
        Linf(eps),
        steps=20,
        step_size=step_size,
        objective=objective,
        draws=Draws.of(0, torch.arange(len(batch.images))),
        clean_start=1.0,
    )


def test_the_worst_iterate_is_returned_where_later_ones_are_right_again():
    """Row 0 is wrong near 0.3 alone, and steps go on to 0.6; row 1 is always right."""

    def logits_fn(x):
        return torch.cat([0 * x, 0.15 - (x - 0.3).abs(), x - 10], 1)

    both = torch.arange(2)
    batch = AttackedBatch(torch.zeros(2, 1), torch.zeros(2).long(), both, both)
    x = search(
        lambda x: torch.cat([logits_fn(x[:1]), logits_fn(x[:1] * 0)]),
        batch,
        0.6,
        0.1,
        lambda logits, labels: logits[:, 2].sum(),
    )
    assert abs(x[0, 0] - 0.3) < 0.15


def test_a_search_ends_where_nothing_is_right():
    model, sizes = Above(), []
    rows = torch.tensor([[0.5], [-0.5]]).double()
    batch = AttackedBatch(rows, torch.tensor([1, 0]), torch.arange(2), torch.arange(2))

    def counted(x):
        sizes.append(len(x))
        return model(x)

    with norms.mode(model, "batch"):
        x = search(counted, batch, 0.6, 0.6, total_cross_entropy)
    assert not right_rows(model, x, batch).any()
    assert sizes == [2, 2]


def test_the_lead_counts_rows_that_are_right_alone():
    logits = torch.tensor([[3.0, 1.0], [0.0, 5.0]], requires_grad=True)
    total = total_lead(logits, torch.tensor([0, 0]))
    (grad,) = torch.autograd.grad(total, logits)
    assert total == -2.0 and grad.tolist() == [[-1.0, 1.0], [0.0, 0.0]]


def test_a_gradient_that_is_not_finite_is_reported():
    def logits_fn(x):
        root = (x - x.detach()).sqrt() if x.requires_grad else 0 * x
        return torch.cat([1 + root, 0 * x], 1)

    batch = AttackedBatch(
        torch.zeros(3, 1), torch.zeros(3).long(), torch.arange(3), torch.arange(3)
    )
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        whole_batch_pgd(
            logits_fn,
            batch,
            Linf(0.1),
            steps=2,
            step_size=0.1,
            objective=total_lead,
            draws=Draws.of(0, torch.arange(3)),
        )
