r"""Median norm: the batch's median in the place of its mean (Park et al., CVPR 2024).

MedBN (arXiv:2403.19326) answers malicious samples in a test batch, of which a few can move
a mean as far as they like:

.. math::
    \eta = \operatorname{med}_i x_i, \qquad \rho^2 = \frac1n \sum_i (x_i - \eta)^2, \qquad
    y = \gamma \frac{x - \eta}{\sqrt{\rho^2 + c}} + \beta

each feature by itself, over samples and positions. Of an even number of values the median
is the lower of the two in the middle, as in ``torch.median``, and its gradient is that of
this one value. The deviation has no such protection: one value can raise it at will.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.norms.affine import AffineNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.mode import batch_norms, updates_running, uses_batch
from advnorm.norms.moments import Moments, refuse_single_value, to_single, update_running
from advnorm.norms.sources import is_plain
from advnorm.norms.standard import BatchNorm, affine, register_layer
from advnorm.norms.thread_scope import exclusive


def measure_median(x: Tensor) -> Moments:
    """Return the median of ``(batch, features, ...)`` and the mean square around it."""
    values = to_single(x).transpose(0, 1).flatten(1)
    refuse_single_value(values.shape[1])
    center = values.median(dim=1).values
    around = (values - center[:, None]).square().mean(1)
    return Moments(center, around, values.shape[1])


@register_layer("median")
class MedianNorm(BatchNorm):
    """Median batch norm (Park et al., CVPR 2024): the median in the place of the mean.

    The running statistics follow the batch's median, and the variance around it; with them
    it is batch norm. Over several ranks each rank has its own median.
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
    ) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum, affine=affine)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``."""
        if uses_batch(self):
            return self.normalize(input, self.moments(input))
        return super().forward(input)

    def moments(self, x: Tensor) -> Moments:
        """Measure ``x``, and update the running statistics if the mode says so."""
        self._check_input_dim(x)
        moments = measure_median(x)
        if updates_running(self):
            update_running(self, moments)
        return moments


@contextmanager
def median_statistics(model: nn.Module) -> Iterator[None]:
    """Let batch norms that use the batch take its median; the running ones do not move.

    The mode decides which layers use the batch:

    >>> import torch
    >>> from advnorm.norms import mode
    >>> layer, x = nn.BatchNorm1d(1), torch.tensor([[0.0], [0.0], [6.0]])
    >>> with mode(layer, "batch"), median_statistics(layer):
    ...     layer(x).detach().flatten()  # around 0, by the root of 36 / 3
    tensor([0.0000, 0.0000, 1.7321])
    """
    layers = batch_norms(model)
    _refuse_other_norms(model)
    with exclusive(model):
        before = [vars(layer).get("forward") for layer in layers]
        try:
            for layer in layers:
                vars(layer)["forward"] = partial(_forward, layer)
            yield
        finally:
            for layer, forward in zip(layers, before, strict=True):
                del vars(layer)["forward"]
                if forward is not None:
                    vars(layer)["forward"] = forward


def _forward(layer: _BatchNorm, input: Tensor) -> Tensor:
    """Replace ``layer.forward``."""
    if not uses_batch(layer):
        return type(layer).forward(layer, input)
    layer._check_input_dim(input)  # type: ignore[no-untyped-call]
    moments = measure_median(input)
    normalized = affine(input, moments, layer.eps, layer.weight, layer.bias)
    return layer.scale(normalized) if isinstance(layer, AffineNorm) else normalized


def _refuse_other_norms(model: nn.Module) -> None:
    for path, layer in model.named_modules():
        known = isinstance(layer, AffineNorm | MedianNorm) or is_plain(layer)
        if isinstance(layer, DualNorm) or (isinstance(layer, _BatchNorm) and not known):
            raise NotImplementedError(
                f"layer {path!r} is a {type(layer).__name__}, which does more than batch "
                "norm, and its form with a median is not known: use statistics of another "
                "kind, or split it into a batch norm and the rest"
            )
