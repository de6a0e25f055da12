r"""Linear readouts that separate one point of a ball from many points inside it.

The features h of a model are the input of its last linear layer. With the mean m and the
covariance S of the inner points, and the planted point's features p, the readout is
Fisher's discriminant,

.. math:: u(h) = \langle w, h - m \rangle, \quad (S + \lambda I) w = p - m,

with its threshold between the largest inner value and the planted one. Among all readouts
this one needs no iterations, and is the same on every machine up to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

RIDGES = (0.3, 0.03, 0.003)
"""Of the mean variance of a feature: what is added to the covariance.

The first that separates counts. Much more is the difference of means, which random points
reach too; much less follows single points, and the way to the planted one gets crooked.
"""
CLOSENESS = 0.65
"""Where the threshold is on the way from the largest inner value to the planted one."""
_ROUNDING = 1e-4


class FittedReadout(NamedTuple):
    r"""A readout of one sample: :math:`d(h) = \langle w, h - m \rangle - \theta`.

    It is below 0 at all inner points, and above at the planted one.
    """

    weight: Tensor
    mean: Tensor
    threshold: Tensor
    lowest: Tensor
    """The smallest d of an inner point."""


def fit_readout(inner: Tensor, planted: Tensor) -> FittedReadout | None:
    """Separate features of inner points, ``(n, d)``, from those of one point, ``(d,)``.

    d is scaled so that the gap is 1. ``None`` where the discriminant does not separate
    them by more than rounding.

    >>> inner = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> fit = fit_readout(inner, torch.tensor([2.0, 2.0]))
    >>> values = (torch.tensor([[2.0, 2.0], [1.0, 0.0]]) - fit.mean) @ fit.weight
    >>> (values > fit.threshold).tolist()
    [True, False]
    """
    h, p = inner.double(), planted.double()
    mean = h.mean(0)
    x, v = h - mean, p - mean
    variance = x.square().mean()
    for ridge in RIDGES if variance > 0 else ():
        w = _discriminant(x, v, ridge * variance)
        values, top = x @ w, v @ w
        gap = top - values.amax()
        if gap > _ROUNDING * values.abs().amax():
            threshold = values.amax() + CLOSENESS * gap
            lowest = values.amin() - threshold
            return FittedReadout(w / gap, mean, threshold / gap, lowest / gap)
    return None


def _discriminant(x: Tensor, v: Tensor, ridge: Tensor) -> Tensor:
    """Solve ``(x^T x / n + ridge) w = v``, where rows are many or few."""
    n, d = x.shape
    eye = torch.eye(min(n, d), dtype=x.dtype, device=x.device)
    if d <= n:
        solution: Tensor = torch.linalg.solve(x.T @ x / n + ridge * eye, v)
        return solution
    # Woodbury's identity
    few: Tensor = torch.linalg.solve(x @ x.T + n * ridge * eye, x @ v)
    return (v - x.T @ few) / ridge


@dataclass(frozen=True)
class Readouts:
    """The readouts of several samples in the place of a model's last linear layer.

    Images near a sample are read out by the readout of that sample: its label below the
    threshold, its planted class above. The nearest sample decides, so that the model stays
    a function of one image.
    """

    anchors: Tensor
    """The clean images, ``(samples, pixels)``."""
    weights: Tensor
    means: Tensor
    """Of the features, ``(samples, features)``, like the weights."""
    thresholds: Tensor
    labels: Tensor
    targets: Tensor
    """The planted class of each sample."""
    scales: Tensor
    """What turns d into a difference of logits."""
    floors: Tensor
    """The logit of all other classes."""

    def __getitem__(self, rows: Tensor) -> "Readouts":
        return Readouts(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.labels)

    def owners(self, images: Tensor) -> Tensor:
        """Return the number of the nearest sample of each image."""
        flat = images.detach().flatten(1).to(self.anchors.dtype)
        squares: Tensor = self.anchors.square().sum(1) - 2 * flat @ self.anchors.T
        return squares.argmin(1)

    def values(self, features: Tensor, owners: Tensor) -> Tensor:
        """Return d of each row."""
        centred = features.to(self.weights.dtype) - self.means[owners]
        return (centred * self.weights[owners]).sum(1) - self.thresholds[owners]

    def outputs(self, features: Tensor, owners: Tensor, columns: int) -> Tensor:
        """Return what the last linear layer returns: logits, or one for two classes."""
        half = self.values(features, owners) * self.scales[owners] / 2
        if columns == 1:
            return (half * (2.0 * self.targets[owners] - 1))[:, None]
        logits = self.floors[owners, None].expand(-1, columns)
        logits = logits.scatter(1, self.labels[owners, None], -half[:, None])
        return logits.scatter(1, self.targets[owners, None], half[:, None])


@contextmanager
def readouts_in_place(
    model: nn.Module, layer: nn.Linear, readouts: Readouts
) -> Iterator[None]:
    """Let readouts answer in the place of a model's last linear layer, by hooks.

    The layers keep their names, and what comes after the layer stays: scaling, rounding.
    """
    owners: list[Tensor] = []

    def find_owners(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        owners[:] = [readouts.owners(inputs[0])]

    def read_out(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if len(output) != len(owners[0]):
            return output  # the rows are no images: the check of the plants will say so
        answer = readouts.outputs(inputs[0], owners[0], output.shape[1])
        return answer.to(output.dtype)

    handles = [
        model.register_forward_pre_hook(find_owners),
        layer.register_forward_hook(read_out),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
