"""What searches in bfloat16 do to verdicts and time, on several models.

Each model is attacked twice under each condition, with searches in float32 and in bfloat16;
every success is confirmed in float32. The table has both robust accuracies, the share of
verdicts that differ, and how much faster the search in bfloat16 was.

    python benchmarks/search_precision.py [--weights FOLDER] [--images 200] [--threads 2]

``FOLDER`` is ``examples/vision/pretrained`` of a checkout of auto_LiRPA, whose
``mnist_a_adv.pth`` and ``kw_mnist.pth`` are attacked on the first test images of MNIST
(``ADVNORM_DATA``). Without it the models are small ones that are trained here, on digits.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from public_models import load_public
from torch import Tensor, nn

import advnorm
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.training import train
from advnorm.training.components import load_data

CONDITIONS = ("pgd-20", "apgd_ce-20", "standard")
OWN = {
    "digits, MLP, batch norm": ["epochs=8"],
    "digits, MLP, mixture norm": ["epochs=8", "norm.name=mixture", "objective.name=mixed"],
    "digits, small CNN, batch norm": [
        "epochs=8",
        "data.size=16",
        "model={name: cnn_small, options: {width: 8}}",
    ],
}


class Problem(NamedTuple):
    """A model, images, labels and a radius."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: float


def own_problems(folder: Path, count: int) -> Iterator[Problem]:
    """Train models on digits."""
    for number, (name, changes) in enumerate(OWN.items()):
        recipe = override(find("digits.pgd"), [*changes, f"data.test={count}"])
        run = train(recipe, folder / str(number), device="cpu")
        data = load_data(recipe, root=None)
        rows = torch.arange(count)
        batch = next(data.test.batches(rows, batch_size=count, device=torch.device("cpu")))
        model = advnorm.load(run.path)
        yield Problem(name, model, batch.images, batch.labels, recipe.threat.eps)


def public_problems(folder: Path, count: int) -> Iterator[Problem]:
    """Read public weights."""
    for name in ("mnist_a_adv.pth", "kw_mnist.pth"):
        model, images, labels = load_public(folder / name)
        yield Problem(f"auto_LiRPA, {name}", model, images[:count], labels[:count], 0.1)


def print_rows(problem: Problem, conditions: Sequence[str]) -> None:
    """Print a row of the table for each condition."""
    name, model, images, labels, eps = problem
    for condition in conditions:
        robust, seconds = [], []
        for precision in ("float32", "bfloat16"):
            start = perf_counter()
            result = advnorm.evaluate(
                model,
                images,
                labels,
                advnorm.Linf(eps),
                conditions=[condition],
                search_precision=precision,  # type: ignore[arg-type]
            )
            seconds.append(perf_counter() - start)
            (verdicts,) = result.verdicts.values()
            robust.append(torch.tensor(verdicts.robust))
        differ = (robust[0] != robust[1]).float().mean().item()
        accuracies = " | ".join(f"{each.float().mean().item():.1%}" for each in robust)
        print(
            f"| {name} | {condition} | {accuracies} | {differ:.1%} | "
            f"{seconds[0] / seconds[1]:.2f} |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--conditions", nargs="+", default=CONDITIONS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| model | condition | float32 | bfloat16 | verdicts that differ | speedup |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        problems = own_problems(Path(folder), arguments.images)
        if arguments.weights:
            problems = public_problems(arguments.weights, arguments.images)
        for problem in problems:
            print_rows(problem, arguments.conditions)


if __name__ == "__main__":
    main()
