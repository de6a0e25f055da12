"""The standard suite beside the official AutoAttack, on networks that others trained.

    python benchmarks/public_attacks.py --official AUTO_ATTACK [--public AUTO_LIRPA]
        [--run RUN] [--rounds 7] [--clock processor] [--only standard apgd_t-100 ...]

``--official`` is a checkout of fra31/auto-attack. ``--public`` is one of
Verified-Intelligence/auto_LiRPA: ``mnist_a_adv`` and ``kw_mnist`` of its
``examples/vision/pretrained`` are attacked at eps 0.1 on MNIST's first 200 test images
(``ADVNORM_DATA``). ``--run`` adds a network of a run folder, at its own threat, on 64 test
images. Ours and the official code take turns, each time in a process of its own, as their
users run them: the time is that of the attack alone, the memory what the process took on
top of the loaded network. ``--clock processor`` measures processor time instead, of all
threads, for a machine with other work. All attacks are at their published settings.

The row ``certified first`` attacks only what ``crown`` does not certify: the verdicts are
the same, and where a network was trained for certificates few samples are left.

Exits with 1 where the suite is less than 2.0 times as fast (3.0 with searches in bfloat16),
robust accuracy differs by more than 0.2 points, or more than 0.5% of the verdicts differ.
"""

import argparse
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from agreement import POINTS, SHARE
from peers import OFFICIAL, official, official_from
from public_models import load_public
from torch import Tensor, nn
from trained_models import load_trained

import advnorm
from advnorm.threat import Threat

PRETRAINED = "examples/vision/pretrained"
PUBLIC = ("mnist_a_adv", "kw_mnist")
EPS, SAMPLES, RUN_SAMPLES = 0.1, 200, 64
LEAST = {"float32": 2.0, "bfloat16": 3.0, "certified first": 0.0}
ATTACKS = ("standard", *OFFICIAL)
CLOCKS = {"wall": perf_counter, "processor": process_time}
OURS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"search_precision": "bfloat16"},
    "certified first": {"certificate": "crown"},
}
"""Settings of ``advnorm.evaluate`` to compare, by the name of their row."""


class Task(NamedTuple):
    """One attack on one network by one of the codes."""

    network: Path
    attack: str
    code: str
    checkout: Path
    threads: int
    clock: str


class Outcome(NamedTuple):
    """What a run took, and which samples it left robust."""

    seconds: float
    robust: list[bool]
    megabytes: float


def load(path: Path) -> tuple[nn.Module, Tensor, Tensor, Threat]:
    """Read public weights, or the network of a run folder, with its first test samples."""
    if path.is_dir():
        trained = load_trained(path, None, RUN_SAMPLES)
        return trained.model, trained.images, trained.labels, trained.threat
    return (*load_public(path, SAMPLES), advnorm.Linf(EPS))


def run(task: Task) -> Outcome:
    """Attack once; the process ends afterwards."""
    torch.set_num_threads(task.threads)
    official_from(task.checkout)
    model, images, labels, threat = load(task.network)
    work: Callable[[], Tensor]
    if task.code == "official":
        peer = official(None if task.attack == "standard" else task.attack)
        work = lambda: peer(model, images, labels, threat)  # noqa: E731
    else:
        work = lambda: ours(model, images, labels, threat, task)  # noqa: E731
    with torch.no_grad():
        model(images)
    before, start = peak(), CLOCKS[task.clock]()
    robust = work()
    return Outcome(CLOCKS[task.clock]() - start, robust.tolist(), peak() - before)


def ours(
    model: nn.Module, images: Tensor, labels: Tensor, threat: Threat, task: Task
) -> Tensor:
    """Return which samples are robust."""
    result = advnorm.evaluate(
        model, images, labels, threat, conditions=[task.attack], **OURS[task.code]
    )
    return torch.tensor(next(iter(result.verdicts.values())).robust)


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(task: Task) -> Outcome:
    """Run a task in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(run, task).result()


def spread(values: list[float]) -> str:
    """Write a median with the smallest and the largest value."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(task: Task, rounds: int) -> bool:
    """Let all codes take turns; print a row for each of ours."""
    own = [code for code in OURS if code != "certified first" or task.attack == "standard"]
    codes = ["official", *own]
    runs: dict[str, list[Outcome]] = {code: [] for code in codes}
    for _ in range(rounds):
        for code in codes:
            runs[code].append(measure(task._replace(code=code)))
    return all([row(task, code, runs[code], runs["official"]) for code in own])


def row(task: Task, code: str, own: list[Outcome], peer: list[Outcome]) -> bool:
    """Print a row of the table; return whether the limits are kept."""
    ratios = [b.seconds / a.seconds for a, b in zip(own, peer, strict=True)]
    verdicts, theirs = torch.tensor(own[0].robust), torch.tensor(peer[0].robust)
    n, differ = len(verdicts), int((verdicts != theirs).sum())
    apart = 100 * abs(int(verdicts.sum()) - int(theirs.sum())) / n
    good = apart <= POINTS and differ <= SHARE * n
    good &= task.attack != "standard" or median(ratios) >= LEAST[code]
    cells = [
        task.network.stem,
        f"`{task.attack}`" + (f", {code}" if code != "float32" else ""),
        spread([each.seconds for each in own]) + " s",
        spread([each.seconds for each in peer]) + " s",
        spread(ratios) + ("" if good else " MISSED"),
        f"{100 * verdicts.float().mean():.1f}, {100 * theirs.float().mean():.1f}%",
        f"{differ} of {n}",
        f"{max(each.megabytes for each in own):.0f}, "
        f"{max(each.megabytes for each in peer):.0f} MB",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return good


def main() -> None:
    """Compare; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", type=Path, required=True)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--only", choices=ATTACKS, nargs="+", default=list(ATTACKS))
    asked = parser.parse_args()
    networks = [asked.run] if asked.run else []
    if asked.public:
        weights = [asked.public / PRETRAINED / f"{name}.pth" for name in PUBLIC]
        networks = [*weights, *networks]
    print(
        "| network | attack | ours | AutoAttack | ratio | robust: ours, AutoAttack | "
        "verdicts that differ | memory: ours, AutoAttack |\n|" + "---|" * 8
    )
    settings = asked.official, asked.threads, asked.clock
    good = [
        compare(Task(network, attack, "", *settings), asked.rounds)
        for network in networks
        for attack in asked.only
    ]
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
