r"""Accuracy with perturbed batch-norm statistics (apart2022, sections 4.4 and 4.5).

A direction :math:`v \in [-1, 1]^d` a layer is scaled by a radius :math:`\epsilon` and
shifts

- ``mean``: :math:`\hat\mu \leftarrow (1 + \epsilon v) \hat\mu` (4.5),
- ``deviation``: :math:`\hat\sigma \leftarrow (1 + \epsilon v) \hat\sigma` (4.5),
- ``both``: :math:`\delta_\mu = \epsilon v, \delta_\sigma = \epsilon v'` in Eq. 3 (4.4).

Directions are drawn once a seed and shared by all radii and models of the same layers:
``uniform`` in :math:`[-1, 1]^d`, ``sign`` in :math:`\{-1, 1\}^d`; or ``adversarial``, the
sign of the loss's gradient over one batch (Algorithm 1, line 5).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import norms
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.engine import logits_of, run_condition
from advnorm.evaluation.samples import as_module, as_samples, isolated
from advnorm.labelled_data import Array, LabelledData
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.norms import StatisticsShift, StatisticsShifts
from advnorm.records import Accuracy, Verdicts

Direction = Literal["uniform", "sign", "adversarial"]
Part = Literal["mean", "deviation", "both"]


@dataclass(frozen=True)
class Perturbation:
    """Which statistics are shifted, and where to."""

    direction: Direction = "sign"
    part: Part = "mean"
    batch: bool = False
    """Shift the batch's statistics (4.4) instead of the running ones (4.5)."""
    groups: int = 1
    """Of a batch, that are normalized each by itself; for batch statistics."""
    draw: int = 0
    """Which of the random directions of a seed; an adversarial one has no other."""

    def __post_init__(self) -> None:
        for name, kinds in (("direction", Direction), ("part", Part)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"no {name} {getattr(self, name)!r}; there are: "
                    f"{', '.join(get_args(kinds))}"
                )
        if self.groups < 1 or (self.groups > 1 and not self.batch):
            raise ValueError(
                f"groups={self.groups}: groups are normalized by batch statistics; give 1, "
                "or statistics of the batch"
            )

    @property
    def name(self) -> str:
        """The name of its results, without part and radius."""
        kind = f"-batch-{self.groups}" if self.batch else ""
        which = f"-draw-{self.draw}" if self.draw else ""
        return f"statistics-{self.direction}{kind}{which}"

    def check(self, radius: float) -> None:
        """Refuse a radius that turns a deviation to zero or below, or is none."""
        if not 0 <= radius < 1:
            raise ValueError(
                f"a radius of perturbed statistics is relative, from 0 and below 1, not "
                f"{radius:g}"
            )

    def shifts(self, directions: StatisticsShifts, radius: float) -> StatisticsShifts:
        """Scale directions to the shifts of Eq. 3; of both parts or of one."""
        self.check(radius)
        return {layer: self._shift(*v, radius) for layer, v in directions.items()}

    def _shift(self, mean: Tensor, deviation: Tensor, radius: float) -> StatisticsShift:
        if self.part == "both":
            return StatisticsShift(radius * mean, radius * deviation)
        if self.part == "mean":
            return StatisticsShift(radius * mean, torch.zeros_like(deviation))
        # Eq. 3 multiplies by 1 + delta where a deviation divides.
        return StatisticsShift(torch.zeros_like(mean), 1 / (1 + radius * deviation) - 1)


def directions(
    model: nn.Module, what: Perturbation, *, seed: int = 0, attacked: Batch | None = None
) -> StatisticsShifts:
    """Return a direction per layer; ``adversarial`` ones raise the loss on ``attacked``."""
    if what.direction == "adversarial":
        if attacked is None:
            raise ValueError("an adversarial direction needs a batch: pass attacked")
        return _adversarial(model, what, attacked)
    norms.check_perturbable(model)
    draw = _uniform if what.direction == "uniform" else _sign
    return {
        layer: StatisticsShift(
            *(draw(layer, seed, part, *place) for part in ("mean", "deviation"))
        )
        for number, layer in enumerate(norms.batch_norms(model))
        for place in [(number, what.draw) if what.draw else (number,)]
    }


def run_perturbed(
    model: nn.Module,
    batches: Iterable[Batch],
    what: Perturbation,
    shifts: StatisticsShifts,
    *,
    total: int,
) -> Verdicts:
    """Test clean images with shifted statistics, then restore the model."""
    with norms.perturbed(model, shifts, groups=what.groups, batch=what.batch):
        condition = Condition(what.name, "statistics")
        return run_condition(model, batches, condition, total=total)


def perturbed_statistics(
    model: nn.Module,
    images: Array | LabelledData,
    labels: Array | None = None,
    *,
    radii: Sequence[float],
    what: Perturbation | None = None,
    attacked: tuple[Tensor, Tensor] | None = None,
    batch_size: int = 250,
    seed: int = 0,
) -> dict[float, Accuracy]:
    """Return the accuracy of ``model`` at each radius of a perturbation of its statistics.

    ``attacked`` are the samples on which an adversarial direction raises the loss; by
    default the first ``batch_size`` of ``images``.

    >>> model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> sorted(perturbed_statistics(model, images, labels, radii=[0.0, 0.1]))
    [0.0, 0.1]
    """
    what, unbound = what or Perturbation(), (-torch.inf, torch.inf)
    for radius in radii:
        what.check(radius)
    samples = as_samples(images, labels, unbound)
    attack_samples = samples if attacked is None else as_samples(*attacked, unbound)
    with isolated():
        model = as_module(model)
        samples.check(model, [])
        attack_samples.check(model, [])
        size = batch_size if attacked is None else len(attack_samples.images)
        first = next(attack_samples.batches(model, size))
        unit_shifts = directions(model, what, seed=seed, attacked=first)
        return {
            radius: run_perturbed(
                model,
                samples.batches(model, batch_size),
                what,
                what.shifts(unit_shifts, radius),
                total=len(samples.images),
            ).accuracy()
            for radius in radii
        }


def _adversarial(model: nn.Module, what: Perturbation, attacked: Batch) -> StatisticsShifts:
    """Return the sign of the loss's gradient in the statistics of each layer."""
    with (
        eval_mode(model),
        frozen_parameters(model),
        norms.statistics_gradient(model, batch=what.batch) as zeros,
        torch.enable_grad(),
    ):
        loss = F.cross_entropy(logits_of(model)(attacked.images), attacked.labels)
        deltas = [delta for shift in zeros.values() for delta in shift]
        gradients = iter(torch.autograd.grad(loss, deltas, materialize_grads=True))
    side = -1.0 if what.part == "deviation" else 1.0  # a larger deviation divides by more
    return {
        layer: StatisticsShift(next(gradients).sign(), side * next(gradients).sign())
        for layer in zeros
    }


def _uniform(layer: _BatchNorm, seed: int, part: str, *place: int) -> Tensor:
    draws = Draws.of(seed, torch.arange(layer.num_features)).stream(part, *place)
    like = layer.weight if layer.running_mean is None else layer.running_mean
    wide = torch.float64 if like is not None and like.dtype == torch.float64 else None
    drawn = 2 * draws.uniform(dtype=wide or torch.float32) - 1
    return drawn if like is None else drawn.to(like.device)


def _sign(layer: _BatchNorm, seed: int, part: str, *place: int) -> Tensor:
    return _uniform(layer, seed, part, *place).sign()
