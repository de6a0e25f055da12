"""What a recipe costs, counted on the meta device: nothing is allocated or computed.

The step is the one that training takes (attack, objective, gradient rule), run on tensors
that have shapes and no values, under PyTorch's counter of operations. An operation is an
addition or a multiplication of a convolution or a matrix product; the rest is not counted.
"""

from dataclasses import dataclass

import torch
from torch import nn

from advnorm.data import Batch, DataSet, Tensors
from advnorm.recipe import Recipe, override
from advnorm.train import parts
from advnorm.train.build import Job, check
from advnorm.train.counter import Counter
from advnorm.train.devices import Device
from advnorm.train.live import Live
from advnorm.train.state import State
from advnorm.train.step import Stepper

SETS: dict[str, tuple[tuple[int, int, int], int, int]] = {
    "digits": ((1, 8, 8), 10, 1437),
    "mnist": ((1, 28, 28), 10, 60_000),
    "fashion_mnist": ((1, 28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
    "cifar100": ((3, 32, 32), 100, 50_000),
    "svhn": ((3, 32, 32), 10, 73_257),
    "tiny-imagenet": ((3, 64, 64), 200, 100_000),
    "imagenette": ((3, 160, 160), 10, 9_469),
    "imagenet": ((3, 224, 224), 1000, 1_281_167),
}
"""Shape, classes and training images (with those held out) of the published sets."""

_SIMPLE = [  # what changes no count, or would leave a part out of it
    "model.standardize=none",
    "precision=float32",
    "channels_last=false",
    "compile=false",
    "start=null",
    "data.augment=none",
    "data.mixup=0",
    "threat.schedule={kind: constant}",
    "attack.steps_schedule={kind: constant}",
    "norm.freeze_last=0",
]


@dataclass(frozen=True)
class Plan:
    """Counts of one recipe; operations of floating-point numbers, and bytes."""

    parameters: int
    forward: int
    """Operations of one sample through the network."""
    step: int
    """Operations of a training step, attack included."""
    steps_per_epoch: int
    epochs: int
    activations: int
    """Most bytes that the tensors kept for backward passes take at once."""
    state: int
    """Bytes of weights, gradients and the optimizer's memory."""
    half: bool

    @property
    def epoch(self) -> int:
        """Operations of an epoch, without validation."""
        return self.step * self.steps_per_epoch

    def hours(self, device: Device, *, epochs: int = 1) -> float:
        """Return the hours that so many epochs take on one device."""
        return device.hours(self.epoch * epochs, half=self.half)


def plan(recipe: Recipe) -> Plan:
    """Count what ``recipe`` costs; a set of one's own is read for its shape and size."""
    check(recipe)
    data = _outline(recipe)
    simple, counter = override(recipe, _SIMPLE), Counter()
    once = _step(override(simple, ["attack.steps=1"]), data, counter)
    twice = _step(override(simple, ["attack.steps=2"]), data, counter)
    more = recipe.attack.steps - 1  # every further step costs the same
    half = recipe.precision in ("bfloat16", "float16")
    width = {"float64": 2.0}.get(recipe.precision, 0.5 if half else 1.0)
    remembered = {"adam": 2, "rmsprop": 1}.get(recipe.optimizer.name, 0)
    if recipe.optimizer.name != "adam" and recipe.optimizer.momentum:
        remembered += 1
    size = 8 if recipe.precision == "float64" else 4
    return Plan(
        parameters=once.parameters,
        forward=once.forward,
        step=once.flops + more * (twice.flops - once.flops),
        steps_per_epoch=once.steps_per_epoch,
        epochs=recipe.epochs,
        activations=round(width * max(once.live, twice.live)),
        state=size * (2 + remembered) * once.parameters,
        half=half,
    )


@dataclass(frozen=True)
class _Step:
    parameters: int
    forward: int
    flops: int
    live: int
    steps_per_epoch: int


def _step(recipe: Recipe, data: DataSet, counter: Counter) -> _Step:
    with torch.device("meta"):
        model = parts.network(recipe, data)
    job = Job(
        recipe=recipe,
        data=data,
        model=model,
        optimizer=_optimizer(model),
        threat=recipe.threat.build(),
        device=torch.device("cpu"),  # the type that autocast is asked about
    )
    rows = torch.empty((job.batch_size,), dtype=torch.int64, device="meta")
    images = torch.empty((job.batch_size, *data.shape), device="meta")
    live, stepper, before = Live(model), Stepper(job), counter.flops
    with torch.random.fork_rng(), counter, live:
        stepper(Batch(images, rows, rows), State())
    return _Step(
        parameters=sum(p.numel() for p in model.parameters()),
        forward=_forward(model, data),
        flops=counter.flops - before,
        live=live.most,
        steps_per_epoch=job.steps_per_epoch,
    )


def _forward(model: nn.Module, data: DataSet) -> int:
    model.eval()
    with torch.no_grad(), Counter() as counter:
        model(torch.empty((1, *data.shape), device="meta"))
    flops: int = counter.flops
    return flops


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Move nothing: the optimizer's own work is too small to count."""
    free = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD([{"params": free, "factor": 1.0}], lr=0.0)


def _outline(recipe: Recipe) -> DataSet:
    """Return a set of the recipe's shape, without images."""
    spec = recipe.data
    shape: tuple[int, ...]
    if spec.name in SETS:
        (channels, height, width), every, count = SETS[spec.name]
        shape = (channels, spec.size or height, spec.size or width)
        classes = len(spec.classes or range(every))
        count = round(count * classes / every)
        kept = count - round(spec.validation * count)
        bounds = (0.0, 1.0)
    else:
        data = parts.load(recipe, root=None)
        shape, classes = data.shape, len(data.classes)
        kept, bounds = len(data.train), data.bounds
    kept = min(kept, spec.train or kept)
    return DataSet(
        spec.name,
        shape,
        tuple(map(str, range(classes))),
        bounds,
        *(_nothing(n, shape) for n in (kept, 0, 0)),
    )


def _nothing(count: int, shape: tuple[int, ...]) -> Tensors:
    labels = torch.empty((count,), dtype=torch.int64, device="meta")
    return Tensors(torch.empty((count, *shape), device="meta"), labels, labels)


def table(recipe: Recipe, devices: dict[str, Device]) -> str:
    """Return what ``advnorm plan`` prints."""
    found = plan(recipe)
    memory = found.activations + found.state
    lines = [
        f"{recipe.name}: {recipe.model.name} on {recipe.data.name}, "
        f"{found.epochs} epochs of {found.steps_per_epoch} steps of {recipe.batch_size}",
        f"parameters           {found.parameters:,}",
        f"forward, one sample  {_flops(found.forward)}",
        f"one step             {_flops(found.step)}",
        f"one epoch            {_flops(found.epoch)}",
        f"activations          {_bytes(found.activations)}",
        f"weights and optimizer {_bytes(found.state)}",
        "",
        f"{'device':<10} {'one epoch':>12} {'all epochs':>12}  fits (one device)",
    ]
    for name, device in devices.items():
        one, whole = found.hours(device), found.hours(device, epochs=found.epochs)
        fits = "yes" if memory < device.memory * 1e9 else "no: use more ranks"
        lines.append(f"{name:<10} {one:>10.4f} h {whole:>10.3f} h  {fits}")
    return "\n".join(lines)


def _flops(count: int) -> str:
    return _scaled(count, "FLOP", 1000)


def _bytes(count: int) -> str:
    return _scaled(count, "B", 1000)


def _scaled(count: float, unit: str, base: int) -> str:
    """Write a count with three digits.

    >>> _scaled(1_110_000_000, "FLOP", 1000)
    '1.11 GFLOP'
    """
    for prefix in ("", "k", "M", "G", "T", "P"):
        if count < base:
            return f"{count:.3g} {prefix}{unit}"
        count /= base
    return f"{count:.3g} E{unit}"
