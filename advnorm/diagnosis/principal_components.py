r"""Principal component analysis: projection to two dimensions."""

from typing import NamedTuple

import torch
from torch import Tensor

_COLUMNS = 4096  # converted to double precision at a time


class PlaneProjection(NamedTuple):
    """Points in the plane of largest variance."""

    points: Tensor
    """Coordinates, shape ``(n, 2)``, float64."""
    explained: tuple[float, float]
    """The fraction of the variance that each component explains."""


def project_to_plane(rows: Tensor) -> PlaneProjection:
    r"""Project ``(n, features)`` to its two principal components.

    With the centred rows :math:`X = U S V^T`, the coordinates are
    :math:`X v_k = s_k u_k`. They come from the smaller of :math:`X X^T` and
    :math:`X^T X`, so a wide feature map costs n x n. The largest coordinate of each
    component is positive; components that do not exist are zero.
    """
    n, features = rows.shape
    mean = rows.double().mean(0)
    square = _gram(rows, mean) if n <= features else _covariance(rows, mean)
    sizes, vectors = torch.linalg.eigh(square)
    sizes = sizes.clamp(min=0)
    rank = min(2, len(sizes))
    top = vectors[:, -rank:].flip(1)
    roots = sizes[-rank:].flip(0).sqrt()
    scores = top * roots if n <= features else (rows.double() - mean) @ top
    largest = scores.gather(0, scores.abs().argmax(0, keepdim=True))
    points = scores.new_zeros(n, 2)
    points[:, :rank] = scores * torch.where(largest < 0, -1.0, 1.0)
    shares = roots.square() / sizes.sum().clamp(min=torch.finfo(sizes.dtype).tiny)
    first, second = (*shares.tolist(), 0.0)[:2]
    return PlaneProjection(points, (first, second))


def _gram(rows: Tensor, mean: Tensor) -> Tensor:
    total = mean.new_zeros(len(rows), len(rows))
    for columns, centre in zip(
        torch.split(rows, _COLUMNS, 1), torch.split(mean, _COLUMNS), strict=True
    ):
        part = columns.double() - centre
        total += part @ part.T
    return total


def _covariance(rows: Tensor, mean: Tensor) -> Tensor:
    centred = rows.double() - mean
    return centred.T @ centred
