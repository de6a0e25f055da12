"""What a norm costs relative to PyTorch's batch norm.

Forward and backward of a pre-activation ResNet-18 of width 16 on 128 CIFAR-sized images,
the first half clean and the second adversarial, all norms and `nn.BatchNorm2d` in turn in
one process. On a shared machine only the fastest of many steps is undisturbed, so the limit
applies to the ratio of the fastest steps. The ratio of the medians and the peak of live
memory are printed too.

    python benchmarks/norms.py [--rounds 15] [--threads 2]
"""

import argparse
from statistics import median
from time import perf_counter

import torch
from live_memory import LiveMemory
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.allocator import freed_memory_kept
from advnorm.models import build

LIMITS = {"mixture": 1.15, "borrowed": 1.15, "affine": 1.15, "dual": 1.5}
NAMES = (
    "batch",
    "mixture",
    "borrowed",
    "affine",
    "dual",
    "group",
    "layer",
    "instance",
    "none",
)


def network(norm: norms.Norm) -> nn.Module:
    """Build the network with one norm."""
    torch.manual_seed(0)
    return build(
        "preact_resnet18", shape=(3, 32, 32), classes=10, norm=norm, options={"width": 16}
    )


def step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Do one forward and one backward pass."""
    model.zero_grad(set_to_none=True)
    with norms.mode(model, "train"), norms.route(model, clean=len(images) // 2):
        F.cross_entropy(model(images), labels).backward()


def seconds(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Time one step."""
    start = perf_counter()
    step(model, images, labels)
    return perf_counter() - start


def peak(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the peak of what the operations of a step keep alive, in MB."""
    with LiveMemory() as live:
        step(model, images, labels)
    return live.megabytes


def main() -> None:
    """Measure every norm; exit with 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    images, labels = torch.rand(128, 3, 32, 32), torch.arange(128) % 10
    reference = network(nn.BatchNorm2d)
    models = {name: network(norms.NORMS[name]()) for name in NAMES}
    models["torch"] = reference
    times: dict[str, list[float]] = {name: [] for name in models}
    with freed_memory_kept():  # as training does
        for _ in range(arguments.rounds + 2):
            for name, model in models.items():
                times[name].append(seconds(model, images, labels))
    memory = peak(reference, images, labels)
    over = False
    for name in NAMES:
        fastest, middle = (
            of(times[name][2:]) / of(times["torch"][2:])  # the first two warm up
            for of in (min, median)
        )
        limit = LIMITS.get(name)
        over |= limit is not None and fastest > limit
        kept = peak(models[name], images, labels)
        print(
            f"{name:9} {fastest:5.2f}x time (median {middle:.2f}x), "
            f"{kept / memory:.2f}x peak memory ({kept:.0f} MB)"
            + (f"  (limit {limit})" if limit else "")
        )
    raise SystemExit(over)


if __name__ == "__main__":
    main()
