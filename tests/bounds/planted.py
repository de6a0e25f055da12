"""Networks with a hidden counterexample: a certificate for one of them is false.

:func:`plant` makes a random network with one operation in the middle, looks for the point
of the ball where the label's margin over another class is least (random points, corners and
a few gradient steps), and moves the last bias until a forward pass in the model's own type
gives that point the other class, by as little as it can or by a share of what the ball
does. The clean image keeps its label. So no method may certify it. :func:`tally` asks them
all, and counts what was refused, what was bounded, and what was certified; as a check that
bounds are not empty, the same networks with the bias moved the other way.
"""

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from planted_operations import ACTIVATIONS, FUNCTIONS, LAYERS, NORMS, Operation
from planted_rounding import CANCELLING, REFUSED
from torch import Tensor, nn

from advnorm.bounds import METHODS, certify
from advnorm.threat import L2, Linf, Threat

OPERATIONS = LAYERS | ACTIVATIONS | NORMS | FUNCTIONS | CANCELLING | REFUSED
POINTS, STEPS = 96, 4


class Planted(nn.Module):
    """A first layer, an operation (in this order or the other), and what comes after."""

    def __init__(self, operation: Operation, *, early: bool, hidden: bool) -> None:
        super().__init__()
        maps = len(operation.shape) > 1 and not early
        self.operation, self.early = operation.apply, early
        self.mean, self.deviation = 0.4, 0.3
        self.first = nn.LazyConv2d(4, 3, padding=1) if maps else nn.LazyLinear(8)
        self.layer = operation.layer() if operation.layer else nn.Identity()
        middle = [nn.ReLU(), nn.LazyLinear(8), nn.Tanh()] if hidden else []
        self.after = nn.Sequential(*middle)
        self.head = nn.LazyLinear(2)
        self.register_buffer("many", torch.randn(8))
        self.register_buffer("one", torch.ones(1))
        self.register_buffer("square", torch.randn(8, 8))
        self.half = (torch.randn(8) * 3).half()

    def forward(self, x: Tensor) -> Tensor:
        """Return two logits."""
        if self.early:
            h = self.first(self.operation(self, x).flatten(1))
        else:
            h = self.operation(self, self.first((x - self.mean) / self.deviation))
        return self.head(self.after(h.flatten(1)))


class Plant(NamedTuple):
    """A network, its images, of which the first one's label does not hold, and the point."""

    model: Planted
    images: Tensor
    labels: Tensor
    threat: Threat
    point: Tensor
    drop: float
    """How far the margin falls in the ball."""

    @property
    def target(self) -> int:
        """The other class."""
        return 1 - int(self.labels[0])


def plant(operation: Operation, seed: int) -> Plant | None:
    """Return a planted network; ``None`` where the ball changes nothing."""
    torch.manual_seed(seed)
    dtype = (torch.float32, torch.float64)[seed % 2]
    eps = float(10 ** (-2.5 * torch.rand(()).double() - 0.5))
    threat: Threat = (Linf(eps), L2(4 * eps))[seed // 2 % 2]
    model = _built(operation, dtype, early=seed // 4 % 3 == 0, hidden=seed // 4 % 2 == 0)
    images = torch.rand(1 + seed % 3, *operation.shape).mul(1.2).sub(0.1).clamp(0, 1)
    images = images.to(dtype)
    with torch.no_grad():
        label = int(model(images[:1]).argmax(1))
        labels = torch.full((len(images),), label)
    point = _worst(model, images[:1], threat, label)
    if torch.rand(()) < 0.2:  # not the worst one
        point = images[:1] + torch.rand(()).to(dtype) * (point - images[:1])
    drop = float(_margin(model, images[:1], label) - _margin(model, point, label))
    sample = Plant(model, images, labels, threat, point, drop)
    share = (0.0, 0.0, 0.02, 0.3)[seed // 6 % 4]
    return sample if _flipped(sample, share) else None


def _built(
    operation: Operation, dtype: torch.dtype, *, early: bool, hidden: bool
) -> Planted:
    """Return a network in evaluation, with norms that have statistics of their own."""
    model = Planted(operation, early=early, hidden=hidden)
    with torch.no_grad():
        model.eval()(torch.rand(2, *operation.shape))
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                value.uniform_(0.3, 2.0)
            elif name.endswith("running_mean"):
                value.add_(torch.randn_like(value), alpha=0.3)
            elif value.ndim == 1 and name.startswith("layer") and name.endswith("weight"):
                value.uniform_(-1.5, 1.5)
    return model.to(dtype).requires_grad_(False)


def _margin(model: nn.Module, x: Tensor, label: int) -> Tensor:
    """Return the margins of points one at a time: products of many may round otherwise."""
    with torch.no_grad():
        logits = torch.cat([model(row) for row in x.split(1)])
    return logits[:, label] - logits[:, 1 - label]


def _worst(model: nn.Module, clean: Tensor, threat: Threat, label: int) -> Tensor:
    """Return the point of the ball with the least margin that a short search finds."""
    many = clean.expand(POINTS, *clean.shape[1:])
    steps = torch.rand_like(many) * 2 - 1
    steps[POINTS // 2 :] = steps[POINTS // 2 :].sign()
    best = threat.project(many + threat.eps * threat.direction(steps), many)
    best[: POINTS // 4] = threat.project(many + threat.eps * steps, many)[: POINTS // 4]
    for _ in range(STEPS):
        with torch.no_grad():
            logits = model(best)
        margins = logits[:, label] - logits[:, 1 - label]
        top = best[margins.argsort()[: POINTS // 16]]
        moved = [top, *(_stepped(model, top, clean, threat, label, k) for k in (2.0, 0.5))]
        best = torch.cat(moved)
    return best[_margin(model, best, label).argmin()].unsqueeze(0)


def _stepped(
    model: nn.Module, x: Tensor, clean: Tensor, threat: Threat, label: int, size: float
) -> Tensor:
    """Take one gradient step; where an operation has no gradient, a random one."""
    grad = torch.zeros_like(x)
    with suppress(RuntimeError):  # types and out= that autograd does not know
        inputs = x.clone().requires_grad_()
        logits = model(inputs)
        margin = (logits[:, label] - logits[:, 1 - label]).sum()
        (grad,) = torch.autograd.grad(margin, inputs)
    grad = torch.where(grad == 0, torch.randn_like(grad), grad)
    step = size * threat.eps * threat.direction(grad)
    return threat.project(x - step, clean.expand_as(x))


def _flipped(sample: Plant, share: float) -> bool:
    """Move the other class's bias until the point has it; tell whether the clean has not."""
    model, label = sample.model, int(sample.labels[0])
    bias = model.head.bias.data
    step = torch.finfo(bias.dtype).eps * max(1.0, float(bias.abs().max()))
    with torch.no_grad():
        bias[sample.target] += _margin(model, sample.point, label)[0] + share * sample.drop
        while not float(_margin(model, sample.point, label)) < 0:
            bias[sample.target] += step
            step *= 2
        inside = bool(sample.threat.contains(sample.point, sample.images[:1]))
        return inside and float(_margin(model, sample.images[:1], label)) > 0


@dataclass
class Counts:
    """How many questions about planted networks were asked, and the answers."""

    planted: int = 0
    refused: int = 0
    bounded: int = 0
    certified: int = 0
    safe: int = 0
    """Questions about networks that were moved the other way and not refused."""
    safe_certified: int = 0
    false: list[str] = field(default_factory=list)
    """What it takes to make each network that was certified again."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(),
                                              strict=True)))  # fmt: skip


def tally(
    seeds: Iterable[int], operations: Mapping[str, Operation] = OPERATIONS
) -> dict[str, Counts]:
    """Ask every method about a network of every operation for every seed."""
    counts = {name: Counts() for name in operations}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same'")
        warnings.filterwarnings("ignore", "An output with one or more elements was resized")
        for seed in seeds:
            for name, operation in operations.items():
                sample = plant(operation, seed)
                if sample is not None:
                    _ask(sample, f"{name}, seed {seed}", counts[name], safe=seed % 2 == 0)
    return counts


def _ask(sample: Plant, name: str, counts: Counts, *, safe: bool) -> None:
    for method in METHODS:
        counts.planted += 1
        verdict = _verdict(sample, method)
        counts.refused += verdict is None
        counts.bounded += verdict is False
        counts.certified += verdict is True
        if verdict:
            counts.false.append(f"{name}, {method}, {sample.threat}")
    if safe:
        sample.model.head.bias.data[sample.target] -= 10 * sample.drop
        verdict = _verdict(sample, "crown")
        counts.safe += verdict is not None
        counts.safe_certified += verdict is True


def _verdict(sample: Plant, method: str) -> bool | None:
    """Tell whether the planted image is certified; ``None`` where the model is refused."""
    try:
        question = sample.model, sample.images, sample.labels, sample.threat
        return bool(certify(*question, method=method).certified[0])
    except NotImplementedError:
        return None
