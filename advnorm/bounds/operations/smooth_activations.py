"""Activations that are smooth: sigmoids, exponentials, and those with a valley."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds import relax
from advnorm.bounds.box import Box, between
from advnorm.bounds.operations.activations import activation, increasing, valley
from advnorm.bounds.operations.arguments import (
    INPLACE,
    Argument,
    LayerSetting,
    above_zero,
    among,
    number,
    positive_number,
)
from advnorm.bounds.operations.entry import register
from advnorm.bounds.relax import Lines


def _tanh_lines(layer: nn.Tanh, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Tanh``: :math:`\tanh' z = k` at :math:`\pm\mathrm{artanh}\sqrt{1-k}`."""
    k = relax.chord(torch.tanh, lower, upper)
    point = _artanh_root(k)
    return relax.parallel(torch.tanh, lower, upper, k, (point, -point))


def _sigmoid_lines(layer: nn.Sigmoid, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Sigmoid``, which is :math:`(1 + \tanh(z/2))/2`."""
    k = relax.chord(torch.sigmoid, lower, upper)
    point = 2 * _artanh_root(4 * k)
    return relax.parallel(torch.sigmoid, lower, upper, k, (point, -point))


def _artanh_root(k: Tensor) -> Tensor:
    r"""Return :math:`\mathrm{artanh}\sqrt{1-k}`, finite where :math:`1-k` rounds to 1."""
    k = k.clamp(torch.finfo(k.dtype).tiny, 1)
    return ((1 + (1 - k).sqrt()) / k.sqrt()).log()


def _softplus_interval(layer: nn.Softplus, box: Box) -> Box:
    """Map both ends; above its threshold PyTorch returns x, which is slightly less."""
    at = layer.threshold / layer.beta
    lower, upper = box.lower, box.upper
    low, high = layer(lower), layer(upper)
    fallen = torch.minimum(low, lower.clamp(min=at))
    low = torch.where(upper > at, fallen, low)
    clean = None if box.clean is None else layer(box.clean)
    risen = torch.maximum(high, layer(upper.clamp(max=at)))
    return between(clean, low, torch.where(lower <= at, risen, high))


def _softplus_lines(layer: nn.Softplus, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Softplus``: its slope is k at :math:`\mathrm{logit}(k)/\beta`.

    Torch replaces it by the identity where :math:`\beta z` is over the threshold t; the
    step there, :math:`\log(1 + e^{-t})/\beta`, is added to the gap.
    """
    f = partial(F.softplus, beta=layer.beta, threshold=layer.threshold)
    k = relax.chord(f, lower, upper)
    point = torch.logit(k.clamp(0, 1)) / layer.beta
    step = float(F.softplus(torch.tensor(-layer.threshold, dtype=torch.float64)))
    return relax.parallel(f, lower, upper, k, (point,), slack=step / layer.beta)


def _elu_lines(layer: nn.ELU, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.ELU``: its slope is k at :math:`\log(k/\alpha)`; it bends at 0."""
    if layer.alpha <= 0:
        raise NotImplementedError(f"ELU has a rule for alpha > 0, not {layer.alpha:g}")
    f = partial(F.elu, alpha=layer.alpha)  # never in place
    k = relax.chord(f, lower, upper)
    point = torch.log((k / layer.alpha).clamp(min=0))
    return relax.parallel(f, lower, upper, k, (point, torch.zeros_like(k)))


def _celu_lines(layer: nn.CELU, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.CELU``: its slope is k at :math:`\alpha \log k`, below 0."""
    f = partial(F.celu, alpha=layer.alpha)  # never in place
    k = relax.chord(f, lower, upper)
    point = layer.alpha * torch.log(k.clamp(min=0))
    return relax.parallel(f, lower, upper, k, (point, torch.zeros_like(k)))


def _logsigmoid_lines(layer: nn.LogSigmoid, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.LogSigmoid``: its slope is k at :math:`-\mathrm{logit}(k)`."""
    k = relax.chord(F.logsigmoid, lower, upper)
    return relax.parallel(F.logsigmoid, lower, upper, k, (-torch.logit(k.clamp(0, 1)),))


def _softsign_lines(layer: nn.Softsign, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.Softsign``: its slope is k at :math:`\pm (k^{-1/2} - 1)`."""
    k = relax.chord(F.softsign, lower, upper)
    point = k.clamp(torch.finfo(k.dtype).tiny, 1).rsqrt() - 1
    return relax.parallel(F.softsign, lower, upper, k, (point, -point))


def _mish_lines(layer: nn.Mish, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.Mish``, whose second derivative is below 0.65."""
    return relax.on_grid(F.mish, lower, upper, curvature=0.65)


def _silu_lines(layer: nn.SiLU, lower: Tensor, upper: Tensor) -> Lines:
    """Relax ``nn.SiLU``, whose second derivative is at most 1/2."""
    return relax.on_grid(F.silu, lower, upper, curvature=0.5)


def _gelu_lines(layer: nn.GELU, lower: Tensor, upper: Tensor) -> Lines:
    r"""Relax ``nn.GELU``: second derivative at most :math:`2/\sqrt{2\pi} < 0.8`, at 0.

    The tanh form has the same bound.
    """
    f = partial(F.gelu, approximate=layer.approximate)
    return relax.on_grid(f, lower, upper, curvature=0.8)


def _gelu_bottom(layer: nn.GELU) -> float:
    return -0.7517916243494656 if layer.approximate == "none" else -0.7524614220710162


register(
    activation(
        nn.Tanh,
        functions=("tanh",),
        interval=increasing,
        relaxation=_tanh_lines,
        max_slope=1.0,
    )
)
register(
    activation(
        nn.Sigmoid,
        functions=("sigmoid",),
        interval=increasing,
        relaxation=_sigmoid_lines,
        max_slope=1.0,
    )
)
register(
    activation(
        nn.Softplus,
        functions=("softplus",),
        arguments=(positive_number("beta"), number("threshold")),
        settings=(above_zero("beta"),),
        interval=_softplus_interval,
        relaxation=_softplus_lines,
        max_slope=1.0,
    )
)
register(
    activation(
        nn.ELU,
        functions=("elu",),
        arguments=(positive_number("alpha"), INPLACE),
        interval=valley(0.0),  # with a negative alpha
        relaxation=_elu_lines,
        max_slope=lambda layer: max(1.0, abs(layer.alpha)),
    )
)
register(
    activation(
        nn.CELU,
        settings=(above_zero("alpha"),),
        interval=valley(0.0),
        relaxation=_celu_lines,
        max_slope=1.0,
    )
)
register(
    activation(
        nn.SiLU,
        functions=("silu",),
        arguments=(INPLACE,),
        interval=valley(-1.2784645427610738),  # where 1 + exp(-x) = -x exp(-x)
        relaxation=_silu_lines,
        max_slope=1.1,
    )
)
register(
    activation(
        nn.GELU,
        functions=("gelu",),
        arguments=(
            Argument(
                "approximate", among("none", "tanh"), "'none' or 'tanh'", by_name=True
            ),
        ),
        settings=(
            LayerSetting(
                "approximate",
                lambda layer: layer.approximate in ("none", "tanh"),
                "approximate='none' or 'tanh'",
            ),
        ),
        interval=valley(_gelu_bottom),
        relaxation=_gelu_lines,
        max_slope=1.14,
    )
)
register(
    activation(
        nn.Mish,
        interval=valley(-1.1924312145787),
        relaxation=_mish_lines,
        max_slope=1.1,
    )
)
register(
    activation(
        nn.LogSigmoid, interval=increasing, relaxation=_logsigmoid_lines, max_slope=1.0
    )
)
register(
    activation(nn.Softsign, interval=increasing, relaxation=_softsign_lines, max_slope=1.0)
)
register(activation(nn.SELU, interval=increasing, max_slope=1.76))
