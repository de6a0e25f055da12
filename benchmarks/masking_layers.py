# ruff: noqa: D102 (what forward does is said by its class)
"""Layers that hide gradients, published and hand-made, and how each is searched past.

Each is planted in a network that was trained without it: before the input, after (or
before) its rectifiers, or behind the logits. None belongs to the package.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.data.corruptions.jpeg import jpeg
from advnorm.evaluation import Adaptation

DRAWS = 20


class MeanSparse(nn.Module):
    r"""MeanSparse (Amini et al., 2024, https://arxiv.org/abs/2406.05927).

    Features of a channel c near their mean are replaced by it:

    .. math::
        y = \mu_c \text{ if } |x - \mu_c| \le \alpha \sigma_c, \text{ else } x,

    in front of an activation, with moments of training images.
    """

    def __init__(self, mean: Tensor, deviation: Tensor, alpha: float) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("threshold", alpha * deviation)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, *(1,) * (x.ndim - 2))
        mean = self.mean.view(shape)
        return torch.where((x - mean).abs() <= self.threshold.view(shape), mean, x)


class Quantize(nn.Module):
    """Reduced bit depth (Xu et al., 2018; Guo et al., 2018)."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.steps = levels - 1

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.steps).round() / self.steps


class JPEG(nn.Module):
    """JPEG compression of the input (Dziugaite et al., 2016; Guo et al., 2018)."""

    def __init__(self, quality: int) -> None:
        super().__init__()
        self.quality = quality

    def forward(self, x: Tensor) -> Tensor:
        return jpeg(x, self.quality)


class Thermometer(nn.Module):
    """Thermometer code of the pixels (Buckman et al., 2018), by steep sigmoids."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.register_buffer("at", (torch.arange(levels) + 0.5) / levels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(1e4 * (x[..., None] - self.at)).mean(-1)


class KWinners(nn.Module):
    """k-winners-take-all (Xiao et al., 2020): the largest share of features stays."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        least = flat.topk(max(1, int(self.share * flat.shape[1])), 1).values[:, -1:]
        return (flat * (flat >= least)).view_as(x)


class RoundedFeatures(nn.Module):
    """Features in steps of a share of their deviation."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return (x / self.step).round() * self.step


class TestDropout(nn.Module):
    """Dropout that stays on (Gal & Ghahramani, 2016, as a defense)."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.share, training=True)


class ActivationPruning(nn.Module):
    """Stochastic activation pruning (Dhillon et al., 2018): draws by size, reweighted."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        sizes = flat.detach().abs()
        p = sizes / sizes.sum(1, keepdim=True).clamp(min=1e-12)
        kept = 1 - (1 - p) ** (self.share * flat.shape[1])
        mask = torch.rand_like(flat) < kept
        return (flat * mask / kept.clamp(min=1e-6)).view_as(x)


class InputNoise(nn.Module):
    """Gaussian noise in every pass (Liu et al., 2018)."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sigma * torch.randn_like(x)


class RandomResize(nn.Module):
    """Random resizing and padding (Xie et al., 2018), one size for a pass."""

    def __init__(self, smallest: float) -> None:
        super().__init__()
        self.smallest = smallest

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        least = round(self.smallest * side)
        size = int(torch.randint(least, side + 1, ()))
        top, left = (int(torch.randint(0, side - size + 1, ())) for _ in range(2))
        small = F.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
        return F.pad(small, (left, side - size - left, top, side - size - top))


class Scale(nn.Module):
    """Logits so large that the softmax is one-hot (as in Papernot et al., 2016)."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class TinyVarianceNorm(nn.BatchNorm1d):
    """A frozen batch norm of the logits whose running variance is tiny."""

    def __init__(self, features: int) -> None:
        super().__init__(features, affine=False, eps=0.0)
        self.running_var.fill_(1e-12)


class MaskedDeviationNorm(nn.Module):
    r"""A per-image norm by a deviation that is masked from the graph.

    .. math::
        y = x (\sigma / \bar\sigma)^k, \quad \bar\sigma = \operatorname{stop}(\sigma)

    is the identity forward, and its gradient is mostly that of the deviation.
    """

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        deviation = x.flatten(1).std(1).clamp(min=1e-6)
        ratio = (deviation / deviation.detach()) ** self.power
        return x * ratio.view(-1, *(1,) * (x.ndim - 1))


class AttackGate(nn.Module):
    """Switches to a rounded copy of images that are rougher than natural ones."""

    def __init__(self, limit: float, levels: int) -> None:
        super().__init__()
        self.limit, self.quantize = limit, Quantize(levels)

    def forward(self, x: Tensor) -> Tensor:
        attacked = roughness(x) > self.limit
        return torch.where(attacked.view(-1, 1, 1, 1), self.quantize(x), x)


class Ripple(nn.Module):
    """A fine ripple that turns gradients around."""

    def __init__(self, height: float) -> None:
        super().__init__()
        self.height = height

    def forward(self, x: Tensor) -> Tensor:
        return x + self.height * torch.sin(20 * x / self.height)


class _Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return torch.randn_like(grad) * grad.std()


class RandomBackward(nn.Module):
    """A layer whose backward pass returns noise."""

    def forward(self, x: Tensor) -> Tensor:
        return _Noise.apply(x)


class DetachedLeak(nn.Module):
    """A layer that is cut from the graph, but for a small leak of the mean pixel."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.flatten(1).mean(1).view(-1, 1, 1, 1)
        return x.detach() + 1e-3 * (mean - mean.detach())


def roughness(x: Tensor) -> Tensor:
    """Return the mean distance of pixels from the mean of their neighbourhood."""
    return (x - F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)).abs().flatten(1).mean(1)


@dataclass(frozen=True)
class Base:
    """A network, and training images for the moments of layers."""

    net: nn.Module
    train: Tensor
    classes: int


@dataclass(frozen=True)
class Mask:
    """A layer that is planted, and the search that knows of it."""

    plant: Callable[[Base], nn.Module]
    adapt: Adaptation
    attacks: tuple[str, ...] = ("apgd_ce-100", "apgd_t-50")
    sound: bool = False


def before_input(layer: nn.Module | Callable[[Base], nn.Module]):
    """Plant a layer in front of the network."""

    def plant(base: Base) -> nn.Module:
        mask = layer if isinstance(layer, nn.Module) else layer(base)
        return nn.Sequential(deepcopy(mask), deepcopy(base.net))

    return plant


def behind_logits(layer: Callable[[Base], nn.Module]):
    """Plant a layer behind the network."""
    return lambda base: nn.Sequential(deepcopy(base.net), layer(base))


def at_rectifiers(
    layer: Callable[[Tensor], nn.Module], *, before: bool = False, most: int = 2
):
    """Plant layers before or after the first rectifiers, made of what reaches them."""

    def plant(base: Base) -> nn.Module:
        net = deepcopy(base.net)
        found = [(n, m) for n, m in net.named_modules() if isinstance(m, nn.ReLU)][:most]
        inputs: dict[str, Tensor] = {}
        handles = [
            m.register_forward_hook(
                lambda _, i, o, n=n: inputs.update({n: i[0] if before else o})
            )
            for n, m in found
        ]
        with torch.no_grad():
            net.eval()(base.train)
        for handle in handles:
            handle.remove()
        for name, relu in found:
            parent, _, last = name.rpartition(".")
            mask = layer(inputs[name])
            pair = (mask, relu) if before else (relu, mask)
            owner = net.get_submodule(parent) if parent else net
            owner._modules[last] = nn.Sequential(*pair)
        return net

    return plant


def mean_sparse(alpha: float) -> Callable[[Tensor], nn.Module]:
    """Return MeanSparse with the moments of features."""

    def make(x: Tensor) -> nn.Module:
        axes = [0, *range(2, x.ndim)]
        return MeanSparse(x.mean(axes), x.std(axes), alpha)

    return make


def gate(base: Base) -> nn.Module:
    """Return a gate that 99% of natural images do not switch."""
    return AttackGate(float(roughness(base.train).quantile(0.99)), 8)


def _slot(kind: str) -> Adaptation:
    return Adaptation(layers={kind: "identity"})


_EOT = Adaptation(draws=DRAWS)
_PRUNING = Adaptation({"ActivationPruning": "identity"}, draws=DRAWS)
"""In expectation the layer is the identity: its own gradient has rare, huge entries."""
_RANDOM = ("quick",)
_DLR = Adaptation(loss="dlr")

MASKS: Mapping[str, Mask] = {
    "(none)": Mask(lambda base: deepcopy(base.net), Adaptation(), sound=True),
    "(none), needless slot": Mask(
        lambda base: deepcopy(base.net), Adaptation({"ReLU": "softplus"}), sound=True
    ),
    "MeanSparse, alpha 0.25": Mask(
        at_rectifiers(mean_sparse(0.25), before=True), _slot("MeanSparse")
    ),
    "MeanSparse, alpha 0.75": Mask(
        at_rectifiers(mean_sparse(0.75), before=True), _slot("MeanSparse")
    ),
    "quantized input, 8 levels": Mask(before_input(Quantize(8)), _slot("Quantize")),
    "JPEG, quality 75": Mask(before_input(JPEG(75)), _slot("JPEG")),
    "thermometer code, 16 levels": Mask(
        before_input(Thermometer(16)), _slot("Thermometer")
    ),
    "k-winners, 20% of features": Mask(
        at_rectifiers(lambda x: KWinners(0.2), most=1), _slot("KWinners")
    ),
    "rounded features, 0.5 deviations": Mask(
        at_rectifiers(lambda x: RoundedFeatures(0.5 * float(x.std()))),
        _slot("RoundedFeatures"),
    ),
    "dropout at test time, 20%": Mask(
        at_rectifiers(lambda x: TestDropout(0.2)), _EOT, _RANDOM
    ),
    "stochastic activation pruning, 100%": Mask(
        at_rectifiers(lambda x: ActivationPruning(1.0)), _PRUNING, ("pgd-40x5",)
    ),
    "stochastic activation pruning, 200%": Mask(
        at_rectifiers(lambda x: ActivationPruning(2.0)), _PRUNING, ("pgd-40x5",)
    ),
    "input noise 0.1": Mask(before_input(InputNoise(0.1)), _EOT, _RANDOM),
    "random resize and padding": Mask(before_input(RandomResize(0.9)), _EOT, _RANDOM),
    "logits x 1e4": Mask(
        behind_logits(lambda base: Scale(1e4)), _DLR, ("apgd-100", "apgd_t-50")
    ),
    "norm with a tiny variance": Mask(
        behind_logits(lambda base: TinyVarianceNorm(base.classes)),
        _DLR,
        ("apgd-100", "apgd_t-50"),
    ),
    "norm by a masked deviation": Mask(
        before_input(MaskedDeviationNorm(50)), _slot("MaskedDeviationNorm")
    ),
    "gate that switches under attack": Mask(before_input(gate), _slot("AttackGate")),
    "ripple": Mask(before_input(Ripple(0.02)), _slot("Ripple")),
    "noise as the backward pass": Mask(
        before_input(RandomBackward()), _slot("RandomBackward")
    ),
    "detached, small leak": Mask(before_input(DetachedLeak()), _slot("DetachedLeak")),
}
"""The rows of the table."""
