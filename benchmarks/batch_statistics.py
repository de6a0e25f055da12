"""Test whether the vulnerability of batch norm disappears with batch statistics.

    python benchmarks/batch_statistics.py --out runs/batch-statistics [--data FOLDER]
                                          [--seeds 3] [--samples 200]

Awais et al. (2020, arXiv:2006.11007) say so: "the adversarial vulnerability of BatchNorm
disappears if we use these statistics". Networks for MNIST are trained with and without
batch norm, on clean images and against PGD, and attacked: with running statistics; with the
images of that attack and statistics of the batch; with an attack that knows the batch and
moves all its rows, through the statistics; by malicious rows; the same with the batch's
median (MedBN); and after recalibration of the running statistics to the test images.

Everything is kept below ``--out``: what is finished is not done again.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from trained_models import load_trained

import advnorm
from advnorm import norms
from advnorm.progress import Plain
from advnorm.recipe import Recipe, override
from advnorm.recipes import find
from advnorm.significance import holm
from advnorm.t_test import FEWEST_SEEDS, LEVEL, Estimate, Sample, estimate, weighted_sum
from advnorm.training import train

CNN = ["model.options.width=8", "data.train=3000", "threat.eps=0.2"]
PERCEPTRON = [
    "model={name: mlp, options: {width: 392, depth: 2}}",
    "data.train=6000",
    "objective.name=standard",
    "validation.select_by=clean",
    "optimizer={name: sgd, lr: 0.01, momentum: 0.9, schedule: {kind: constant}}",
    "epochs=10",
]
"""galloway2019, section 5, with fewer images and epochs."""
NETWORKS: dict[str, tuple[list[str], list[str], float]] = {
    "perceptron, clean": (
        PERCEPTRON,
        ["norm={where: [0], options: {start: uniform}}"],
        0.1,
    ),
    "CNN, clean": (
        [*CNN, "objective.name=standard", "validation.select_by=clean"],
        [],
        0.1,
    ),
    "CNN, PGD": (CNN, [], 0.2),
}
"""Changes of the recipe mnist.norms, more of them with batch norm, and the radius tested.
"""
ATTACK, BATCH, FEW = "pgd-30", 100, 20
SHARES = (0.01, 0.05, 0.2)


class Network(NamedTuple):
    """A trained model with its test samples, and the radius."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: float
    seed: int

    def accuracy(self, condition: str = ATTACK, **settings: Any) -> list[int]:
        """Return how many of how many samples are right under one condition."""
        images = settings.pop("images", self.images)
        model = settings.pop("model", self.model)
        threat = advnorm.Linf(settings.pop("eps", self.eps))
        result = advnorm.evaluate(
            model,
            images,
            self.labels,
            threat,
            conditions=[condition],
            seed=self.seed,
            batch_size=settings.pop("batch_size", BATCH),
            **settings,
        )
        return [result.results[0].accuracy.correct, result.results[0].accuracy.n]

    def attacked(self) -> Tensor:
        """Return the images of the attack on the running statistics."""
        result = advnorm.evaluate(
            self.model,
            self.images,
            self.labels,
            advnorm.Linf(self.eps),
            conditions=[ATTACK],
            seed=self.seed,
            keep="adversarial",
        )
        return next(iter(result.adversarial.values()))

    def recalibrated(self, images: Tensor, steps: int = 0) -> nn.Module:
        """Return the model with statistics of these images, after steps on the entropy."""
        return norms.recalibrate(self.model, images, batch_size=BATCH, entropy_steps=steps)


Row = Callable[[Network], list[int]]


def batch_rows() -> dict[str, Row]:
    """Return what is measured of a network with batch norm, by the name of its row."""
    rows: dict[str, Row] = {
        "clean, running": lambda n: n.accuracy("clean"),
        "clean, batch": lambda n: n.accuracy("clean", statistics="batch"),
        "clean, median": lambda n: n.accuracy("clean", statistics="median"),
        "attack on running, running": lambda n: n.accuracy(),
        "attack on running, batch": lambda n: n.accuracy(
            "clean", images=n.attacked(), statistics="batch"
        ),
        "attack on running, median": lambda n: n.accuracy(
            "clean", images=n.attacked(), statistics="median"
        ),
        "joint attack, batch": lambda n: n.accuracy(statistics="batch"),
        "10% attacked at a time, batch": lambda n: n.accuracy(
            statistics="batch", attacked=0.1
        ),
        f"joint attack, batch of {FEW}": lambda n: n.accuracy(
            statistics="batch", batch_size=FEW
        ),
        "10% attacked at a time, median": lambda n: n.accuracy(
            statistics="median", attacked=0.1
        ),
        "joint attack, median": lambda n: n.accuracy(statistics="median"),
    }
    for share in SHARES:
        rows[f"{share:.0%} malicious, batch"] = malicious_row("batch", share, None)
    rows["20% malicious, median"] = malicious_row("median", 0.2, None)
    for kind in ("batch", "median"):
        rows[f"20% malicious without a bound, {kind}"] = malicious_row(kind, 0.2, 1.0)
    return rows | {
        "attack on running, recalibrated": lambda n: n.accuracy(
            model=n.recalibrated(n.images)
        ),
        "attack on running, recalibrated and 20 entropy steps": lambda n: n.accuracy(
            model=n.recalibrated(n.images, 20)
        ),
        "attack on running, recalibrated to its images": lambda n: n.accuracy(
            "clean", images=n.attacked(), model=n.recalibrated(n.attacked())
        ),
    }


def malicious_row(kind: str, share: float, eps: float | None) -> Row:
    """Return the accuracy of benign rows beside a share of malicious ones."""
    return lambda n: n.accuracy(
        statistics=kind, malicious=share, eps=n.eps if eps is None else eps
    )


PLAIN_ROWS: dict[str, Row] = {
    "clean, running": lambda n: n.accuracy("clean"),
    "attack on running, running": lambda n: n.accuracy(),
}
"""Of a network without norms."""


def recipe_of(name: str, norm: str, seed: int) -> Recipe:
    """Return the recipe of a network."""
    changes, with_norm, _ = NETWORKS[name]
    more = with_norm if norm == "batch" else []
    return override(
        find("mnist.norms"), [*changes, f"norm.name={norm}", *more, f"seed={seed}"]
    )


def measure(name: str, norm: str, seed: int, options: argparse.Namespace) -> None:
    """Train a network and measure its rows, as far as that is not done."""
    path = folder(options.out, name, norm, seed)
    begun = (path / "run" / "recipe.yaml").exists()
    recipe = recipe_of(name, norm, seed)
    train(recipe, path / "run", root=options.data, resume=begun, progress=Plain())
    s = load_trained(path / "run", options.data, options.samples)
    network = Network(s.model, s.images, s.labels, NETWORKS[name][2], seed)
    rows, measured = batch_rows() if norm == "batch" else PLAIN_ROWS, read(path)
    for row, work in rows.items():
        if row not in measured:
            measured[row] = work(network)
            (path / "rows.tmp").write_text(json.dumps(measured, indent=1))
            (path / "rows.tmp").replace(path / "rows.json")
            print(f"{path.name}: {row}: {measured[row]}", flush=True)


def folder(out: Path, name: str, norm: str, seed: int) -> Path:
    """Return where a network is kept."""
    return out / f"{name}-{norm}-{seed}".replace(", ", "-").replace(" ", "-")


def read(path: Path) -> dict[str, list[int]]:
    """Return what was measured of a network before."""
    file = path / "rows.json"
    return json.loads(file.read_text()) if file.exists() else {}


def rates(out: Path, name: str, norm: str, seeds: int, row: str) -> list[float]:
    """Return the accuracies in percent, one a seed that is done."""
    measured = [read(folder(out, name, norm, seed)).get(row) for seed in range(seeds)]
    return [100 * pair[0] / pair[1] for pair in measured if pair]


def cell(values: list[float]) -> str:
    """Write a mean with its standard error."""
    if not values:
        return ""
    error = f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{error}"


def table(out: Path, seeds: int) -> str:
    """Return all rows, one column a network."""
    heads = [f"{name}, eps {eps:g}" for name, (_, _, eps) in NETWORKS.items()]
    lines = [f"| test, statistics | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    rows = [(row, "batch", row) for row in batch_rows()]
    rows += [(f"no norm: {row.partition(',')[0]}", "none", row) for row in PLAIN_ROWS]
    for title, norm, row in rows:
        cells = [cell(rates(out, name, norm, seeds, row)) for name in NETWORKS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def answers(out: Path, seeds: int) -> str:
    """Return the differences that the claim is about, with corrected t-tests at 5%."""
    running, joint = (
        ("batch", "attack on running, running"),
        ("batch", "joint attack, batch"),
    )
    share, plain = ("batch", "10% attacked at a time, batch"), ("none", running[1])
    moved = ("batch", "attack on running, batch")
    pairs = {
        "images of the attack on running statistics: batch − running": (moved, running),
        "own attack: batch, joint − running": (joint, running),
        "own attack: batch, 10% at a time − running": (share, running),
        "own attack: batch, joint − no norm": (joint, plain),
        "own attack: batch, 10% at a time − no norm": (share, plain),
    }
    rows = [
        (title, name, difference(out, name, seeds, *pair))
        for title, pair in pairs.items()
        for name in NETWORKS
    ]
    p_values = holm([1.0 if d is None else d.p_value() for _, _, d in rows])
    lines = ["| difference in points | network | 95% interval | |", "|---|---|---|---|"]
    for (title, name, apart), p in zip(rows, p_values, strict=True):
        if apart is None:
            lines.append(f"| {title} | {name} | not measured | |")
            continue
        low, high = apart.mean - apart.half_width, apart.mean + apart.half_width
        word = "higher" if apart.mean > 0 else "lower"
        word = word if p < LEVEL and seeds >= FEWEST_SEEDS else "cannot be told"
        lines.append(
            f"| {title} | {name} | {apart.mean:+.1f} [{low:.1f}, {high:.1f}] | {word} |"
        )
    return "\n".join(lines)


def difference(
    out: Path, name: str, seeds: int, one: tuple[str, str], other: tuple[str, str]
) -> Estimate | None:
    """Return a difference of means over seeds; paired where the networks are the same."""
    first, second = (rates(out, name, norm, seeds, row) for norm, row in (one, other))
    if min(len(first), len(second)) < 2:
        return None
    if one[0] == other[0]:
        return estimate(Sample([a - b for a, b in zip(first, second, strict=False)]))
    return weighted_sum([(1, Sample(first)), (-1, Sample(second))])


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tables", action="store_true", help="print what is there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for seed in range(options.seeds) if not options.tables else ():
        for name in NETWORKS:
            for norm in ("batch", "none"):
                measure(name, norm, seed, options)
    print(table(options.out, options.seeds))
    print()
    print(answers(options.out, options.seeds))


if __name__ == "__main__":
    main()
