r"""Batch moments of one process or of all ranks, with gradients.

.. math::
    \mu = \frac1n \sum_i x_i, \qquad \sigma^2 = \frac1n \sum_i (x_i - \mu)^2

each feature by itself, over samples and positions. Over ranks the moments are combined
exactly (Chan et al., 1979): :math:`\mu = \sum_r n_r \mu_r / n` and
:math:`\sigma^2 = \sum_r n_r (\sigma_r^2 + (\mu_r - \mu)^2) / n`, in one communication.
"""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm import ranks


class Moments(NamedTuple):
    """Mean and biased variance of each feature, and the number of values per feature."""

    mean: Tensor
    var: Tensor
    n: float


def measure_moments(x: Tensor, *, sync: bool = False) -> Moments:
    """Return the moments of ``(batch, features, ...)``, in single precision or wider."""
    count = x.numel() // max(x.shape[1], 1)
    dims = [0, *range(2, x.ndim)]
    if count:
        var, mean = torch.var_mean(to_single(x), dims, correction=0)
    else:
        mean = var = to_single(x).sum(dims)
    local = Moments(mean, var, count)
    moments = combine_ranks(local) if sync and ranks.size() > 1 else local
    refuse_single_value(moments.n)
    return moments


def refuse_single_value(n: float) -> None:
    """Refuse statistics of a single value per feature: its deviation is 0."""
    if n <= 1:
        raise ValueError(
            "batch statistics need more than one value per feature: use a batch of at "
            "least 2 samples, or the running statistics (norms.mode(model, 'running'))"
        )


def combine_ranks(local: Moments) -> Moments:
    """Combine the moments of all ranks; every rank must call it."""
    count = local.mean.new_full((1,), local.n)
    packed = torch.cat([local.mean, local.var, count])
    gathered: Tensor = _Gather.apply(packed)  # type: ignore[no-untyped-call]
    mean, var, counts = torch.split(gathered, [len(local.mean), len(local.var), 1], dim=1)
    total = counts.sum()
    share = counts / total
    whole = (share * mean).sum(0)
    spread = (share * (var + (mean - whole).square())).sum(0)
    return Moments(whole, spread, total.item())


def update_running(layer: _BatchNorm, moments: Moments) -> None:
    """Update the running statistics of ``layer`` by ``moments``, as PyTorch does.

    The running variance follows the unbiased variance; a momentum of ``None`` is the
    average over all batches.
    """
    mean, var, count = layer.running_mean, layer.running_var, layer.num_batches_tracked
    assert mean is not None and var is not None and count is not None
    with torch.no_grad():
        count.add_(1)
        factor = 1.0 / count.item() if layer.momentum is None else layer.momentum
        unbiased = moments.var.detach() * (moments.n / (moments.n - 1))
        mean.lerp_(moments.mean.detach().to(mean.dtype), factor)
        var.lerp_(unbiased.to(var.dtype), factor)


def to_single(x: Tensor) -> Tensor:
    """Return half precision as single precision; leave other tensors unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class _Gather(torch.autograd.Function):
    """Stack the ranks' vectors; the gradient is that of the sum of all ranks' losses."""

    @staticmethod
    def forward(ctx: Any, vector: Tensor) -> Tensor:
        parts = [torch.empty_like(vector) for _ in range(ranks.size())]
        with ranks.communication():
            dist.all_gather(parts, vector.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous()
        with ranks.communication():
            dist.all_reduce(total)
        return total[dist.get_rank()]
