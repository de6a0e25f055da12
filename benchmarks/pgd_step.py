"""How long a PGD-10 training step takes, in passes of the plain model.

Of the plain model a step needs 10 input-gradient passes and 1 full pass (forward, backward
to the weights). The attack's passes are those of the folded model, which are faster;
everything else that a step does (reading and augmenting the batch, folding, random starts,
projections, guards, the optimizer) comes on top. Steps with each ``attack.precision`` and
the plain passes are timed in turns, in one process; the median of the ratios is printed,
with the quarter of the rounds on each side of it.

    python benchmarks/pgd_step.py [--rounds 15] [--threads 2] [--cpu-time]
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

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

CLOCK: dict[str, Callable[[], float]] = {"now": perf_counter}
LIMITS = {
    "cnn_small, 1x28x28": {"float32": 0.90, "bfloat16": 0.65},
    "preact_resnet18 of width 16, 3x32x32": {"float32": 0.85, "bfloat16": 0.60},
}
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


def build_case(case: str, folder: Path, *changed: str) -> Experiment:
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
        *changed,
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
    """Run 10 input-gradient passes and 1 full pass of the plain model."""
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
    start = CLOCK["now"]()
    work()
    return CLOCK["now"]() - start


def measure(case: str, folder: Path, rounds: int) -> float:
    """Print the medians of step over bound; return the largest one over its limit."""
    experiments = {
        precision: build_case(case, folder, f"attack.precision={precision}")
        for precision in LIMITS[case]
    }
    steppers = {name: (Stepper(e), State()) for name, e in experiments.items()}
    batches = endless(next(iter(experiments.values())))
    fixed, bounds = next(batches), []
    steps: dict[str, list[float]] = {name: [] for name in steppers}
    plain = build_case(case, folder)
    for _ in range(rounds + 2):
        bounds.append(seconds(lambda: bound(plain, fixed.images, fixed.labels)))
        for name, (stepper, state) in steppers.items():
            batch = next(batches)
            steps[name].append(seconds(partial(stepper, batch, state)))
    over = []
    for name, limit in LIMITS[case].items():
        ratios = [s / b for s, b in zip(steps[name][2:], bounds[2:], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        over.append(middle / limit)
        print(
            f"{case}, {name}: step {median(steps[name][2:]) * 1e3:.1f} ms, plain passes "
            f"{median(bounds[2:]) * 1e3:.1f} ms, ratio {middle:.3f} ({low:.3f} to "
            f"{high:.3f}; limit {limit:.2f})",
            flush=True,
        )
    return max(over)


def every_case(
    doc: str | None, measure: Callable[[str, Path, int], float], limit: float
) -> None:
    """Measure every case as the arguments say; exit with 1 if one is over the limit."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        CLOCK["now"] = process_time
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, freed_memory_kept():
        ratios = [measure(case, Path(folder), arguments.rounds) for case in CASES]
    raise SystemExit(any(number > limit for number in ratios))


if __name__ == "__main__":
    every_case(__doc__, measure, 1.0)
