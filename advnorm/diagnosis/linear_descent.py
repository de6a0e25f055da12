r"""Linear classifiers by full-batch gradient descent, batched (galloway2019, section 3).

With labels :math:`y = \pm 1` the logistic loss is minimized at a constant learning rate,

.. math::
    w \leftarrow w - \eta \nabla_w \frac1n \sum_i \zeta\bigl(y_i (w^T x_i + b)\bigr),
    \qquad \zeta(z) = \log(1 + e^{-z}),

and b alike. Batch norm of the inputs with the whole batch, without affine parameters, is
the same descent on :math:`(x - \mu) / \sqrt{\sigma^2 + c}` (Fig. 1: BNGD on x and GD on
BN(x)), whose weights act on x as :math:`w / \sqrt{\sigma^2 + c}`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.norms.moments import Moments

_MOMENTUM = 0.1  # of running statistics, PyTorch's default


class LinearClassifier(NamedTuple):
    """Classifiers ``w x + b``, one for each leading index."""

    weight: Tensor
    bias: Tensor


def descend(
    points: Tensor, signs: Tensor, start: LinearClassifier, *, lr: float, steps: int
) -> LinearClassifier:
    """Minimize the mean logistic loss of ``(..., n, features)`` from ``start``."""
    weight, bias = start.weight.clone(), start.bias.clone()
    signed = points * signs[..., None]
    for _ in range(steps):
        margins = (signed @ weight[..., None]).squeeze(-1) + signs * bias[..., None]
        pull = torch.sigmoid(-margins) / points.shape[-2]
        weight += lr * (pull[..., None, :] @ signed).squeeze(-2)
        bias += lr * (pull * signs).sum(-1)
    return LinearClassifier(weight, bias)


def batch_moments(points: Tensor) -> Moments:
    """Return mean and (population) variance over ``n`` of ``(..., n, features)``."""
    var, mean = torch.var_mean(points, -2, correction=0)
    return Moments(mean, var, points.shape[-2])


def normalize(points: Tensor, moments: Moments, c: float) -> Tensor:
    """Return the points after batch norm with the constant c."""
    scale = (moments.var + c).rsqrt()
    return (points - moments.mean[..., None, :]) * scale[..., None, :]


def running_after(moments: Moments, steps: int) -> Moments:
    r"""Return the running statistics after ``steps`` updates by the same batch.

    From mean 0 and variance 1, :math:`r \leftarrow 0.9 r + 0.1 s` with the unbiased
    variance, as PyTorch does.
    """
    left = (1 - _MOMENTUM) ** steps
    unbiased = moments.var * (moments.n / max(moments.n - 1, 1))
    return Moments((1 - left) * moments.mean, left + (1 - left) * unbiased, moments.n)


def angle(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the angle between boundaries in degrees, 0 to 90, of ``(..., features)``.

    .. math:: \theta = \cos^{-1} \frac{|w^T w^*|}{\|w\|_2 \|w^*\|_2}

    >>> angle(torch.tensor([1.0, 1.0]), torch.tensor([-2.0, 0.0])).round().item()
    45.0
    """
    a, b = a.double(), b.double()
    norms = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    cosine = (a * b).sum(-1).abs() / norms.clamp(min=torch.finfo(norms.dtype).tiny)
    return torch.rad2deg(torch.arccos(cosine.clamp(max=1)))
