"""What a recipe costs, counted on the meta device: nothing is allocated or computed.

The step is the one that training takes (attack, objective, gradient rule), run on tensors
that have shapes and no values, under PyTorch's counter of operations. An operation is an
addition or a multiplication of a convolution or a matrix product; the rest is not counted.

Schedules change what a step does: without a radius there is no attack and no bound, and
one of two terms may be left out where its weight is 0 (of CROWN's bound and the intervals',
at beta 0 or 1). Each kind of step is run once and counts as often as training takes it.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from advnorm.data import Batch, DataSet, TensorSplit
from advnorm.objectives import CERTIFIED
from advnorm.recipe import (
    AttackSpec,
    Constant,
    DataSpec,
    ModelSpec,
    NormSpec,
    Recipe,
    RecipeChanges,
)
from advnorm.runs.activation_memory import ActivationMemory
from advnorm.runs.devices import Device
from advnorm.runs.load import explain_misfit
from advnorm.runs.operation_counter import OperationCounter
from advnorm.training import components
from advnorm.training.build import Experiment
from advnorm.training.dry_run import check_batch_statistics
from advnorm.training.recipe_checks import check_recipe
from advnorm.training.state import State
from advnorm.training.step import Stepper
from advnorm.training.user_model_checks import check_logits_of_classes

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

_SIMPLE = RecipeChanges(
    model=ModelSpec(standardize="none"),
    precision="float32",
    channels_last=False,
    compile=False,
    init_from=None,
    data=DataSpec(augment="none", mixup=0.0),
    norm=NormSpec(freeze_epochs=0),
)
"""Changes that affect no count, or without which a part would not be counted."""


@dataclass(frozen=True)
class Plan:
    """Counts of one recipe; operations of floating-point numbers, and bytes."""

    parameters: int
    forward: int
    """Operations of one sample through the network."""
    step: int
    """Operations of a training step, attack included; of the longest, where they differ."""
    steps_per_epoch: int
    epochs: int
    training: int
    """Operations of all epochs, without validation."""
    activations: int
    """Peak bytes of the tensors saved for backward passes."""
    state: int
    """Bytes of weights, gradients and optimizer state."""
    half: bool

    @property
    def epoch(self) -> int:
        """Operations of an epoch on average, without validation."""
        return self.training // self.epochs

    def hours(self, device: Device, *, epochs: int = 1) -> float:
        """Return the hours that a number of epochs takes on one device."""
        return device.hours(self.epoch * epochs, half=self.half)


def plan(recipe: Recipe) -> Plan:
    """Count what ``recipe`` costs; only a data set of the user's own is read."""
    check_recipe(recipe)
    data = _empty_data(recipe)
    with explain_misfit(data.shape):
        return _plan(recipe, data)


def _plan(recipe: Recipe, data: DataSet) -> Plan:
    experiment = counted_experiment(recipe, data)
    check_batch_statistics(experiment, *_batch(experiment)[:2])
    kinds, counter = step_kinds(experiment), OperationCounter()
    counts = {kind: _count(experiment, kind, at, counter) for kind, at in kinds.items()}
    half = recipe.precision in ("bfloat16", "float16")
    width = {"float64": 2.0}.get(recipe.precision, 0.5 if half else 1.0)
    remembered = {"adam": 2, "rmsprop": 1}.get(recipe.optimizer.name, 0)
    if recipe.optimizer.name != "adam" and recipe.optimizer.momentum:
        remembered += 1
    size = 8 if recipe.precision == "float64" else 4
    parameters = sum(p.numel() for p in experiment.model.parameters())
    return Plan(
        parameters=parameters,
        forward=_forward(experiment.model, data),
        step=max(counts[kind].of(1, at.longest) for kind, at in kinds.items()),
        steps_per_epoch=experiment.steps_per_epoch,
        epochs=recipe.epochs,
        training=sum(counts[kind].of(at.steps, at.attack) for kind, at in kinds.items()),
        activations=round(width * max(count.activations for count in counts.values())),
        state=size * (2 + remembered) * parameters,
        half=half,
    )


class StepKind(NamedTuple):
    """What decides which operations a step runs, besides the number of attack steps."""

    attacked: bool
    weights: tuple[float | None, ...]
    """Those that are 0 or 1, at which a term may be left out; else none."""


@dataclass
class StepCount:
    """The steps of one kind that training takes."""

    first: State
    steps: int = 0
    attack: int = 0
    """Steps of their attacks, together."""
    longest: int = 0


def step_kinds(experiment: Experiment) -> dict[StepKind, StepCount]:
    """Return the kinds of steps that training takes, and how often."""
    stepper, counts = Stepper(experiment), dict[StepKind, StepCount]()
    schedules = (experiment.recipe.threat.schedule, experiment.recipe.attack.steps_schedule)
    changes = stepper.weights or any(schedule != Constant() for schedule in schedules)
    epochs, steps = experiment.recipe.epochs, experiment.steps_per_epoch
    alike = 1 if changes else epochs * steps
    for number in range(0, epochs * steps, alike):
        epoch, seen = divmod(number, steps)
        now = epoch + seen / steps
        weights = (weight(now) for weight in stepper.weights.values())
        ends = tuple(weight if weight in (0, 1) else None for weight in weights)
        kind = StepKind(stepper.eps(now) > 0, ends)
        step = counts.setdefault(kind, StepCount(State(epoch=epoch, seen=seen)))
        length = stepper.attack_steps(now)
        step.steps += alike
        step.attack += alike * length
        step.longest = max(step.longest, length)
    return counts


class _StepCost(NamedTuple):
    """Operations of a step with one step of attack, of a further one, and bytes kept."""

    flops: int
    further: int
    activations: int

    def of(self, steps: int, attack: int) -> int:
        """Return the operations of ``steps`` steps with ``attack`` attack steps in all."""
        return steps * self.flops + (attack - steps) * self.further


def _count(
    experiment: Experiment, kind: StepKind, steps: StepCount, counter: OperationCounter
) -> _StepCost:
    """Count a step of a kind; every further step of its attack costs the same."""
    once, memory = _step(experiment, 1, steps.first, counter)
    if not kind.attacked or experiment.recipe.objective.name in CERTIFIED:
        return _StepCost(once, 0, memory)
    twice, memory_of_two = _step(experiment, 2, steps.first, counter)
    return _StepCost(once, twice - once, max(memory, memory_of_two))


def _step(
    experiment: Experiment, attack_steps: int, at: State, counter: OperationCounter
) -> tuple[int, int]:
    """Take a step; return its operations and its peak activation memory."""
    attack = AttackSpec(steps=attack_steps, steps_schedule=Constant())
    recipe = experiment.recipe.replace(attack=attack)
    stepper = Stepper(replace(experiment, recipe=recipe))
    memory, before = ActivationMemory(experiment.model), counter.flops
    with torch.random.fork_rng(), counter, memory:
        stepper(_batch(experiment), at)
    return counter.flops - before, memory.peak


def counted_experiment(recipe: Recipe, data: DataSet) -> Experiment:
    """Build the recipe on the meta device, without what changes no count."""
    recipe = recipe.replace(**_SIMPLE)
    converts = recipe.norm.apply == "convert"  # of layers that may be in memory already
    with torch.random.fork_rng(), torch.device("cpu" if converts else "meta"):
        model = components.build_model(recipe, data).to("meta")
    return Experiment(
        recipe=recipe,
        data=data,
        model=model,
        optimizer=_optimizer(model),
        threat=recipe.threat.build(),
        device=torch.device("cpu"),  # the type that autocast is asked about
    )


def _batch(experiment: Experiment) -> Batch:
    rows = torch.empty((experiment.batch_size,), dtype=torch.int64, device="meta")
    images = torch.empty((experiment.batch_size, *experiment.data.shape), device="meta")
    return Batch(images, rows, rows)


def _forward(model: nn.Module, data: DataSet) -> int:
    model.eval()
    with torch.no_grad(), OperationCounter() as counter:
        logits = model(torch.empty((1, *data.shape), device="meta"))
    check_logits_of_classes(logits, rows=1, classes=len(data.classes))
    flops: int = counter.flops
    return flops


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer with lr 0: its own operations are too few to count."""
    free = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD([{"params": free, "factor": 1.0}], lr=0.0)


def _empty_data(recipe: Recipe) -> DataSet:
    """Return a data set of the recipe's shape, without images."""
    spec = recipe.data
    shape: tuple[int, ...]
    if spec.name in SETS:
        (channels, height, width), every, count = SETS[spec.name]
        shape = (channels, spec.size or height, spec.size or width)
        classes = len(spec.classes or range(every))
        count = round(count * classes / every)
        training = count - round(spec.validation * count)
        bounds = (0.0, 1.0)
    else:
        data = components.load_data(recipe, root=None)
        shape, classes = data.shape, len(data.classes)
        training, bounds = len(data.train), data.bounds
    training = min(training, spec.train or training)
    return DataSet(
        spec.name,
        shape,
        tuple(map(str, range(classes))),
        bounds,
        *(_empty_split(n, shape) for n in (training, 0, 0)),
    )


def _empty_split(count: int, shape: tuple[int, ...]) -> TensorSplit:
    labels = torch.empty((count,), dtype=torch.int64, device="meta")
    return TensorSplit(torch.empty((count, *shape), device="meta"), labels, labels)


def table(recipe: Recipe, devices: dict[str, Device]) -> str:
    """Return what ``advnorm plan`` prints."""
    cost = plan(recipe)
    memory = cost.activations + cost.state
    alike = cost.training == cost.step * cost.steps_per_epoch * cost.epochs
    lines = [
        f"{recipe.name}: {recipe.model.name} on {recipe.data.name}, "
        f"{cost.epochs} epochs of {cost.steps_per_epoch} steps of {recipe.batch_size}",
        f"parameters           {cost.parameters:,}",
        f"forward, one sample  {_flops(cost.forward)}",
        f"{'one step' if alike else 'the longest step':<20} {_flops(cost.step)}",
        f"{'one epoch' if alike else 'one epoch on average':<20} {_flops(cost.epoch)}",
        f"activations          {_bytes(cost.activations)}",
        f"weights and optimizer {_bytes(cost.state)}",
        "",
        f"{'device':<10} {'one epoch':>12} {'all epochs':>12}  fits (one device)",
    ]
    for name, device in devices.items():
        epoch, total = cost.hours(device), cost.hours(device, epochs=cost.epochs)
        fits = "yes" if memory < device.memory * 1e9 else "no: use more ranks"
        lines.append(f"{name:<10} {epoch:>10.4f} h {total:>10.3f} h  {fits}")
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
