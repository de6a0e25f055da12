"""What a step costs with each gradient rule, relative to a plain step.

A plain step is one forward pass, one backward pass and the optimizer's step. The rules take
turns in one process. Printed are the medians over rounds of the ratio to the plain step,
with the limits of this project.

    python benchmarks/gradients.py [--rounds 15] [--threads 2] [--batch 128]
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from advnorm import models
from advnorm.gradients import GRADIENTS, BatchObjective
from advnorm.norms import NORMS

CASES: dict[str, tuple[str, dict[str, int], float]] = {
    "plain": ("plain", {}, 1.0),
    "sam": ("sam", {}, 2.1),
    "apart, N = M": ("apart", {}, 2.1),
    "apart, N = M, 16 groups": ("apart", {"groups": 16}, 2.1),
    "apart, N = 24": ("apart", {"samples": 24}, 1.25),
    "apart, N = 24, 8 groups": ("apart", {"samples": 24, "groups": 8}, 1.25),
    "apart_sam, N = M": ("apart_sam", {}, 2.1),
}


def step(rule: str, settings: dict[str, int], batch: int) -> Callable[[], None]:
    """Return a function that takes one step of a WideResNet-16-2 on random images."""
    torch.manual_seed(0)
    model = models.build(
        "wide_resnet",
        shape=(3, 32, 32),
        classes=10,
        norm=NORMS["batch"](),
        standardize=None,
        options={"depth": 16, "widen": 2},
    )
    images, labels = torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def take() -> None:
        optimizer.zero_grad(set_to_none=True)
        GRADIENTS[rule](BatchObjective(model, images, labels), **settings)
        optimizer.step()

    return take


def main() -> None:
    """Time the rules in turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    steps = {
        name: step(rule, settings, arguments.batch)
        for name, (rule, settings, _) in CASES.items()
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 1):
        for name, take in steps.items():
            start = perf_counter()
            take()
            if number:  # the first round warms up
                times[name].append(perf_counter() - start)
    print("| rule | ms a step | over plain | limit |\n|---|---|---|---|")
    for name, seconds in times.items():
        ratio = median(t / p for t, p in zip(seconds, times["plain"], strict=True))
        shown = f"{1000 * median(seconds):.0f} | {ratio:.2f}x | {CASES[name][2]:.2f}x"
        print(f"| {name} | {shown} |")


if __name__ == "__main__":
    main()
