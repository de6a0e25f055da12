"""How near a PGD-10 training step is to its lower bound.

A step cannot cost less than 10 input-gradient passes and 1 full pass (forward, backward to
the weights). Everything else that a step does (reading and augmenting the batch, random
starts, projections, guards, the optimizer) is overhead. Both are timed side by side, in
turns, in one process; the median of the ratios is printed.

    python benchmarks/pgd_step.py [--rounds 15] [--threads 2]
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch.nn import functional as F

from advnorm import norms
from advnorm.allocator import freed_memory_kept
from advnorm.data import Batch
from advnorm.model_state import frozen_parameters
from advnorm.recipe import Recipe, override
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.state import State
from advnorm.training.step import Stepper

LIMIT = 1.05
CASES = {
    "cnn_small, 1x28x28": ("1,28,28", "cnn_small", "{}", "adam", "none"),
    "preact_resnet18 of width 16, 3x32x32": (
        "3,32,32",
        "preact_resnet18",
        "{width: 16}",
        "sgd",
        "crop_flip",
    ),
}


def build_case(case: str, folder: Path) -> Experiment:
    """Build a training experiment on random images of the case's size, batch size 128."""
    shape, model, options, optimizer, augment = CASES[case]
    size = tuple(int(s) for s in shape.split(","))
    rng = np.random.default_rng(0)
    path = folder / f"{model}.npz"
    np.savez(
        path,
        x_train=rng.integers(0, 256, (1280, *size), dtype=np.uint8),
        y_train=np.arange(1280) % 10,
        x_test=rng.integers(0, 256, (20, *size), dtype=np.uint8),
        y_test=np.arange(20) % 10,
    )
    changes = [
        f"data.name=npz:{path}",
        f"data.augment={augment}",
        f"model.name={model}",
        f"model.options={options}",
        "threat.eps=8/255",
        "attack.steps=10",
        f"optimizer.name={optimizer}",
        "optimizer.lr=1e-3",
        "batch_size=128",
    ]
    return build_experiment(override(Recipe(), changes), root=None, device="cpu")


def endless(experiment: Experiment) -> Iterator[Batch]:
    """Yield training batches as the loop reads them."""
    while True:
        order = torch.randperm(len(experiment.data.train))[:1152]
        yield from experiment.data.train.batches(
            order, batch_size=128, device=experiment.device, epoch=0
        )


def bound(experiment: Experiment, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Do what no step can avoid: 10 input-gradient passes and 1 full pass."""
    model = experiment.model
    with norms.mode(model, "running"), frozen_parameters(model):
        for _ in range(10):
            x = images.detach().requires_grad_()
            torch.autograd.grad(F.cross_entropy(model(x), labels), x)
    model.zero_grad(set_to_none=True)
    with norms.mode(model, "train"):
        F.cross_entropy(model(images), labels).backward()


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = perf_counter()
    work()
    return perf_counter() - start


def measure(case: str, folder: Path, rounds: int) -> float:
    """Return the median of step over bound, measured in turns."""
    experiment = build_case(case, folder)
    stepper, state, batches = Stepper(experiment), State(), endless(experiment)
    fixed = next(batches)
    steps, bounds = [], []
    for index in range(rounds + 2):
        low = seconds(lambda: bound(experiment, fixed.images, fixed.labels))
        step = seconds(lambda: stepper(next(batches), state))
        if index >= 2:  # the first two warm up
            bounds.append(low)
            steps.append(step)
    ratio = median(step / low for step, low in zip(steps, bounds, strict=True))
    print(
        f"{case}: step {median(steps) * 1e3:.1f} ms, bound {median(bounds) * 1e3:.1f} ms, "
        f"ratio {ratio:.3f} (limit {LIMIT})"
    )
    return ratio


def every_case(
    doc: str | None, measure: Callable[[str, Path, int], float], limit: float
) -> None:
    """Measure every case as the arguments say; exit with 1 if one is over the limit."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, freed_memory_kept():
        ratios = [measure(case, Path(folder), arguments.rounds) for case in CASES]
    raise SystemExit(any(number > limit for number in ratios))


if __name__ == "__main__":
    every_case(__doc__, measure, LIMIT)
