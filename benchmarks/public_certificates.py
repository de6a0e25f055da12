"""Certificates of public networks beside auto_LiRPA: times, memory, and whether they agree.

    python benchmarks/public_certificates.py --lirpa CHECKOUT [--robustbench CHECKOUT]
        [--networks mnist_a_adv kw_mnist resnet wrn_10_1] [--methods ibp crown-ibp crown]

Networks that nobody here trained: ``mnist_a_adv`` and ``kw_mnist`` are weights of
auto_LiRPA's checkout (``examples/vision/pretrained``, a CNN of four layers), on the first
test images of MNIST (``ADVNORM_DATA``). ``resnet`` is the definition of its
``examples/vision/models/resnet.py`` and ``wrn_10_1`` the WideResNet of RobustBench's
checkout; both have random weights, 32x32 images of noise, batch norms with the statistics
of 256 such images, and the predictions for labels.

Both libraries take turns in one process, tracing and wrapping included; printed are the
median and the range of ``--rounds`` calls after one that warms up (``crown``: of
``--crown-rounds`` calls). auto_LiRPA runs at the number of images a call and in the mode
(patches or matrix) that suit it best, which is measured first. ``2 passes`` is the time of
two forward passes of the model, at the number of images a pass that suits it best. Peaks of
memory are those of a process that runs one library alone. The last column is the largest
difference of margins in float64, relative to the largest margin of the image, where
auto_LiRPA cuts its bounds with intervals as ours does (``compare_crown_with_ibp``).
"""

import argparse
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import torch
from certify import peer
from peers import official_from
from public_models import load_public
from torch import Tensor, nn

from advnorm.bounds import margin_bounds
from advnorm.threat import Linf

SPLITS = {"ibp": (100, 250, 500, 1000), "crown-ibp": (50, 100, 250), "crown": (10, 25, 50)}
MNIST = ("mnist_a_adv", "kw_mnist")
RESIDUAL = ("resnet", "wrn_10_1")
PASSES = (50, 100, 250, 500, 1000)
"""Images a pass."""
CLOCKS = {"wall": perf_counter, "processor": process_time}
WARM = 5.0
"""Seconds of a call that needs no other one to warm up."""
TRIAL = {"ibp": 1000, "crown-ibp": 250, "crown": 50}
"""Images with which the peer's setting is chosen."""


class Problem(NamedTuple):
    """A network with images, labels and a radius."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: float

    def first(self, count: int) -> "Problem":
        """Return the same with fewer images."""
        return self._replace(images=self.images[:count], labels=self.labels[:count])


def problem(name: str, arguments: argparse.Namespace, count: int) -> Problem:
    """Return the first images of a network's problem."""
    if name in MNIST:
        path = arguments.lirpa / "examples/vision/pretrained" / f"{name}.pth"
        model, images, labels = load_public(path)
        return Problem(model, images[:count], labels[:count], arguments.eps)
    torch.manual_seed(0)
    folder, module, build = {
        "resnet": (arguments.lirpa, "examples.vision.models.resnet", "model_resnet"),
        "wrn_10_1": (
            arguments.robustbench,
            "robustbench.model_zoo.architectures.wide_resnet",
            "WideResNet",
        ),
    }[name]
    *parents, file = module.split(".")
    sys.path.insert(0, str(Path(folder, *parents)))
    make = getattr(import_module(file), build)
    model = make(depth=10, widen_factor=1) if name == "wrn_10_1" else make()
    images = torch.rand(256, 3, 32, 32)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = None  # the average of all batches: of this one
        model.train()(images)
        labels = model.eval()(images).argmax(1)
    return Problem(model, images[:count], labels[:count], arguments.residual_eps)


def ours(task: Problem, method: str) -> Tensor:
    """Return our margins."""
    return margin_bounds(*task[:3], Linf(task.eps), method=method)


def theirs(task: Problem, method: str, split: int, mode: str, cut: bool = False) -> Tensor:
    """Return auto_LiRPA's margins."""
    return peer(*task, method, cut=cut, batch=split, conv_mode=mode)


def passes(task: Problem, size: int) -> None:
    """Apply the model twice to all images."""
    for _ in range(2):
        for part in task.images.split(size):
            task.model(part)


def timed(
    sides: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Return the seconds of each side, in turn, after a call each that warms up."""
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, run in sides.items():
            begin = clock()
            run()
            spent[name].append(clock() - begin)
        if max(seconds[0] for seconds in spent.values()) > WARM and number + 1 == rounds:
            return spent  # a call that long needs none before it
    return {name: seconds[1:] for name, seconds in spent.items()}


def fastest(
    runs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> str:
    """Return which of some ways is the fastest."""
    spent = timed(runs, rounds, clock)
    return min(spent, key=lambda name: min(spent[name]))


def measure(name: str, method: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure one method on one network."""
    task = problem(name, arguments, _count(name, method, arguments))
    clock = CLOCKS[arguments.clock]
    best = arguments.way or best_way(name, method, task, clock)
    sides: dict[str, Callable[[], object]] = {
        "ours": partial(ours, task, method),
        "theirs": partial(theirs, task, method, *_settings(best)),
    }
    if method == "ibp":
        runs = {str(n): partial(passes, task, n) for n in PASSES if n <= len(task.images)}
        sides["passes"] = runs[fastest(runs, 5, clock)]
    rounds = arguments.crown_rounds if method == "crown" else arguments.rounds
    first = task.first(2 if name in RESIDUAL else 20)
    first = first._replace(
        model=deepcopy(task.model).double(), images=first.images.double()
    )
    mine, peers = (
        ours(first, method),
        theirs(first, method, len(first.images), "patches", cut=True),
    )
    scale = peers.abs().amax(1, keepdim=True)
    return {
        **timed(sides, rounds, clock),
        "images": len(task.images),
        "way": best,
        "difference": float(((mine - peers).abs() / scale).max()),
    }


def best_way(name: str, method: str, task: Problem, clock: Callable[[], float]) -> str:
    """Return the images a call and the mode in which auto_LiRPA is the fastest."""
    if name in RESIDUAL:
        trial, splits = task.first(2), (1, 2)
    else:
        trial = task.first(TRIAL[method])
        splits = tuple(n for n in SPLITS[method] if n <= len(trial.images))
    ways = [f"{n} patches" for n in splits]
    if method == "crown":
        ways += [f"{n} matrix" for n in splits if n == 1 or name not in RESIDUAL]
    runs = {way: partial(theirs, trial, method, *_settings(way)) for way in ways}
    return fastest(runs, 1 if method == "crown" else 2, clock)


def _settings(way: str) -> tuple[int, str]:
    split, mode = way.split()
    return int(split), mode


def _count(name: str, method: str, arguments: argparse.Namespace) -> int:
    if name in RESIDUAL:
        return int(arguments.residual_images)
    return int(arguments.crown_images if method == "crown" else arguments.images)


def one(arguments: argparse.Namespace) -> None:
    """Print what one measurement gives, as JSON."""
    name, method, side = arguments.one.split(":", 2)
    torch.set_num_threads(arguments.threads)
    with torch.no_grad():
        if side == "times":
            print(json.dumps(measure(name, method, arguments)))
            return
        task = problem(name, arguments, _count(name, method, arguments))
        if side == "ours":
            ours(task, method)
        elif side != "nothing":
            theirs(task, method, *_settings(side))
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def child(what: str) -> object:
    """Run a measurement in a process of its own."""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--one", what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what} failed: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def spread(seconds: list[float]) -> str:
    """Return the median and the range."""
    return f"{median(seconds):.3f} s [{min(seconds):.3f}, {max(seconds):.3f}]"


def row(name: str, method: str) -> str:
    """Return a row of the table."""
    times = child(f"{name}:{method}:times")
    assert isinstance(times, dict)
    mine, others = times["ours"], times["theirs"]
    ratios = [there / here for here, there in zip(mine, others, strict=True)]
    double = times.get("passes")
    bare, *peaks = (
        child(f"{name}:{method}:{side}") for side in ("nothing", "ours", times["way"])
    )
    cells = [
        name,
        f"`{method}`",
        str(times["images"]),
        spread(mine),
        spread(others),
        times["way"],
        f"{median(ratios):.1f} [{min(ratios):.1f}, {max(ratios):.1f}]",
        f"{spread(double)}, {median(mine) / median(double):.2f} times" if double else "",
        " / ".join(f"{peak:.0f}" for peak in (*peaks, bare)),
        f"{times['difference']:.1e}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lirpa", type=Path, required=True)
    parser.add_argument("--robustbench", type=Path)
    parser.add_argument("--networks", nargs="*", default=[*MNIST, *RESIDUAL])
    parser.add_argument("--methods", nargs="*", default=list(SPLITS))
    parser.add_argument("--eps", type=float, default=0.1)
    parser.add_argument("--residual-eps", type=float, default=1 / 255)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--crown-images", type=int, default=1000)
    parser.add_argument("--residual-images", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--crown-rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--way", help="of auto_LiRPA, such as '1 patches': no trial")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    official_from(arguments.lirpa)
    if arguments.one:
        one(arguments)
        return
    print(f"{arguments.clock} time, {arguments.threads} threads")
    print(
        "| network | method | images | ours | auto_LiRPA | its images a call, mode | ratio "
        "| 2 passes, ours over it | peak MB, ours / peer / neither | difference |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.networks:
        for method in arguments.methods:
            print(row(name, method), flush=True)


if __name__ == "__main__":
    main()
