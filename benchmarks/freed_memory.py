"""What it is worth to keep freed memory, on a CPU with glibc.

A training step, and a step of an attack, of a pre-activation ResNet-18, and a training step
of a perceptron with weights of 50 MB; with freed memory kept as training, evaluation and
diagnosis keep it, and as glibc keeps it once its own limit is at its highest. Each way has
a process of its own, for a heap remembers; they take turns. Printed are medians over the
rounds, the median of the ratios, the page faults of a step and the largest memory.

    python benchmarks/freed_memory.py [--rounds 3] [--threads 2]
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from advnorm import models, norms
from advnorm.allocator import freed_memory_kept, keep_freed_memory
from advnorm.attacks import bim
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.threat import Linf

STEPS = 4
WAYS = {"plain": nullcontext, "kept": freed_memory_kept}


class Cost(NamedTuple):
    """What a step takes: seconds, page faults, and the process's largest memory in MB."""

    seconds: float
    faults: float
    peak: float


def main() -> None:
    """Print a line a case; as a child, what one case costs one way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, way = arguments.one
        torch.set_num_threads(arguments.threads)
        print(json.dumps(timed(CASES[name](), WAYS[way]())))
        return
    for name in CASES:
        compare(name, arguments.rounds, arguments.threads)


def network(name: str, shape: tuple[int, ...] = (3, 32, 32), **options: int) -> nn.Module:
    """Build a network with batch norm."""
    return models.build(
        name,
        shape=shape,
        classes=10,
        norm=norms.NORMS["batch"](),
        standardize=None,
        options=options,
    )


def training(model: nn.Module, shape: tuple[int, ...]) -> Callable[[], object]:
    """Return a step of SGD."""
    images, labels = torch.rand(shape), torch.randint(0, 10, shape[:1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def attack(model: nn.Module, shape: tuple[int, ...]) -> Callable[[], object]:
    """Return a step of BIM."""
    images, labels = torch.rand(shape), torch.randint(0, 10, shape[:1])

    def step() -> None:
        with eval_mode(model), frozen_parameters(model):
            bim(model, images, labels, Linf(8 / 255), steps=1, step_size=2 / 255)

    return step


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "ResNet-18, width 64, 128 images, training": lambda: training(
        network("preact_resnet18"), (128, 3, 32, 32)
    ),
    "ResNet-18, width 16, 512 images, training": lambda: training(
        network("preact_resnet18", width=16), (512, 3, 32, 32)
    ),
    "ResNet-18, width 64, 250 images, attack": lambda: attack(
        network("preact_resnet18"), (250, 3, 32, 32)
    ),
    "perceptron, weights of 50 MB, training": lambda: training(
        network("mlp", (1, 84, 84), width=3528), (128, 1, 84, 84)
    ),
}


def compare(name: str, rounds: int, threads: int) -> None:
    """Let both ways take turns, and print a line."""
    costs_by_way: dict[str, list[Cost]] = {way: [] for way in WAYS}
    for _, way in product(range(rounds), WAYS):
        command = [sys.executable, __file__, "--one", name, way, f"--threads={threads}"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        costs_by_way[way].append(Cost(*json.loads(said)))
    plain, kept = (Cost(*map(median, zip(*costs_by_way[way], strict=True))) for way in WAYS)
    pairs = zip(*costs_by_way.values(), strict=True)
    ratio = median(one.seconds / two.seconds for one, two in pairs)
    print(
        f"{name}: {plain.seconds:.3f} s, kept {kept.seconds:.3f} s, {ratio:.2f} times as "
        f"fast; page faults {plain.faults:,.0f} and {kept.faults:,.0f}; "
        f"memory {plain.peak:,.0f} and {kept.peak:,.0f} MB",
        flush=True,
    )


def timed(step: Callable[[], object], way: AbstractContextManager[None]) -> Cost:
    """Return what a step costs; the first one warms up."""
    keep_freed_memory()
    with way:
        step()
        before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
        for _ in range(STEPS):
            step()
        seconds = (perf_counter() - start) / STEPS
        after = resource.getrusage(resource.RUSAGE_SELF)
    faults = (after.ru_minflt - before.ru_minflt) / STEPS
    return Cost(seconds, faults, after.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
