"""How cost grows with images, steps, classes, depth, width and ranks.

    python benchmarks/scaling.py [--quick] [--rounds 7] [--threads 1] [--axes images depth]
        [--size 8] [--ranks 1 2 4] [--cpu-time]

One setting at a time grows, the others stay at their base. Measured are a step of training
by PGD, the attacks ``pgd`` and ``apgd_t`` of an evaluation, and the certificates ``ibp``
and ``crown``, on a WideResNet with batch norm, random weights and images of noise. Images
are those of one training step, attack or certificate; ``crown``, which takes far longer,
bounds a sixteenth of them. Labels are the model's predictions and the attacks' radius is so
small that they break nothing: all steps are taken.

All sizes take turns, in one run: a round times each of them once. The slope is that of
log(seconds) over log(size) by least squares: 1 is proportional, 0 is no growth. Printed are
its mean over the rounds with the 95% interval of a t-test, the slope between the two
largest sizes alone, and the median seconds at each size. The slope of depth is over the
number of layers, that of width over the number of maps (forward passes: 1 and 2).

Ranks are processes of this one machine that talk by gloo, share the images of a call and
wait for the slowest; they also share its cores.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from itertools import product
from math import log
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from advnorm import ranks
from advnorm.allocator import freed_memory_kept
from advnorm.data import Batch
from advnorm.evaluation import Condition, parse_conditions
from advnorm.evaluation.engine import run_condition
from advnorm.recipe import Recipe, override
from advnorm.t_test import Sample, estimate
from advnorm.threat import Linf
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.state import State
from advnorm.training.step import Stepper

CLOCKS = {"wall": perf_counter, "processor": process_time}
UNBREAKABLE, CERTIFIED = Linf(1e-5), Linf(1 / 255)
"""The radius of the attacks, and of the certificates: with some unstable neurons."""


class Setting(NamedTuple):
    """What a measurement is made of; each field is an axis."""

    images: int = 32
    steps: int = 4
    classes: int = 10
    depth: int = 10
    width: int = 1
    ranks: int = 1


SIZES: dict[str, tuple[int, ...]] = {
    "images": (32, 64, 128, 256),
    "steps": (4, 8, 16, 32),
    "classes": (5, 10, 20, 40),
    "depth": (10, 16, 22),
    "width": (1, 2, 3),
    "ranks": (1, 2, 4),
}
QUICK: dict[str, tuple[int, ...]] = {
    "images": (32, 64, 128),
    "steps": (4, 8, 16),
    "classes": (5, 10, 20),
    "depth": (10, 16),
    "width": (1, 2),
    "ranks": (1, 2),
}
MEANINGLESS = {("steps", "ibp"), ("steps", "crown")}
KINDS: dict[str, str] = {
    "train": "",
    "pgd": "pgd-{steps}",
    "apgd_t": "apgd_t-{steps}",
    "ibp": "ibp",
    "crown": "crown",
}
"""By kind of work, its condition; training has none."""
FEWER = {"pgd": 1, "apgd_t": 1, "ibp": 1, "crown": 16}
"""By kind, of how many images it is shown one."""
Work = Callable[[], object]


def build(setting: Setting, size: int, folder: Path) -> Experiment:
    """Build a training experiment on images of noise."""
    rng, count = np.random.default_rng(0), 2 * max(setting.images, setting.classes)
    path = folder / f"{os.getpid()}.npz"
    shape, labels = (count, 3, size, size), np.arange(count) % setting.classes
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    changes = [
        f"data={{name: 'npz:{path}', validation: 0.5}}",
        f"model={{name: wide_resnet, options: {{depth: {setting.depth}, "
        f"widen: {setting.width}}}}}",
        f"attack.steps={setting.steps}",
        f"batch_size={setting.images}",
        "threat.eps=8/255",
    ]
    return build_experiment(override(Recipe(), changes), root=None, device="cpu")


def works(setting: Setting, size: int, folder: Path) -> dict[str, Work]:
    """Return every kind of work at a setting, each as a function to call."""
    trained, tested = (build(setting, size, folder) for _ in range(2))
    batch = first_images(tested, slice(0, setting.images))
    batch = batch._replace(labels=predictions(tested.model, batch.images))
    share = first_images(trained, ranks.shard(setting.images))
    result: dict[str, Work] = {"train": partial(Stepper(trained), share, State())}
    for kind, form in KINDS.items():
        if form:
            threat = UNBREAKABLE if "steps" in form else CERTIFIED
            name = form.format(steps=setting.steps)
            (condition,) = parse_conditions([name], [threat], threat.bounds)
            few = first_rows(batch, setting.images // FEWER[kind])
            result[kind] = partial(evaluate, tested.model, few, condition)
    return result


def first_images(experiment: Experiment, rows: slice) -> Batch:
    """Return some of the first training images as one batch."""
    order = torch.arange(len(experiment.data.train))[rows]
    (batch,) = experiment.data.train.batches(
        order, batch_size=len(order), device=experiment.device, epoch=0
    )
    return batch


def first_rows(batch: Batch, count: int) -> Batch:
    """Return the first rows of a batch, one at least."""
    return Batch(*(tensor[: max(1, count)] for tensor in batch))


def predictions(model: nn.Module, images: Tensor) -> Tensor:
    """Return the model's classes: what is classified correctly is attacked."""
    with torch.no_grad():
        classes: Tensor = model.eval()(images).argmax(1)
    return classes


def evaluate(model: nn.Module, batch: Batch, condition: Condition) -> None:
    """Test the images under a condition, as an evaluation does."""
    run_condition(model, [batch], condition, total=len(batch.labels))


def seconds(work: Work, clock: Callable[[], float]) -> float:
    """Time one call."""
    start = clock()
    work()
    return clock() - start


def serve(
    rank: int, setting: Setting, options: argparse.Namespace, pipe: Connection
) -> None:
    """Be one of several ranks: do the work that is named, until none is."""
    torch.set_num_threads(options.threads)
    folder = Path(options.folder)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / f'store-{setting.ranks}'}",
        rank=rank,
        world_size=setting.ranks,
        timeout=timedelta(minutes=10),
    )
    with freed_memory_kept():
        todo = works(setting, options.size, folder)
        while (kind := pipe.recv()) is not None:
            dist.barrier()
            pipe.send(seconds(todo[kind], CLOCKS[options.clock]))
    dist.destroy_process_group()


@contextmanager
def rank_processes(
    setting: Setting, options: argparse.Namespace
) -> Iterator[list[Connection]]:
    """Keep a group of ranks waiting for the time of a block."""
    context = mp.get_context("spawn")
    pairs = [context.Pipe() for _ in range(setting.ranks)]
    group = [
        context.Process(target=serve, args=(rank, setting, options, theirs), daemon=True)
        for rank, (_, theirs) in enumerate(pairs)
    ]
    for process in group:
        process.start()
    for _, theirs in pairs:
        theirs.close()  # so that the end of a rank is seen as the end of its pipe
    try:
        yield [ours for ours, _ in pairs]
        for ours, _ in pairs:
            ours.send(None)
    finally:
        for process in group:
            process.join(timeout=60)
            process.kill()


def slowest(pipes: Sequence[Connection], kind: str) -> float:
    """Let all ranks do the work; return the seconds of the slowest."""
    for pipe in pipes:
        pipe.send(kind)
    return max(pipe.recv() for pipe in pipes)


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the slope of log(times) over log(sizes) by least squares.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = np.log(sizes), np.log(times)
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def table(
    axes: Mapping[str, Sequence[int]], times: Mapping[tuple[Setting, str], list[float]]
) -> Iterator[str]:
    """Yield the lines of the table, from the seconds of all rounds."""
    yield f"{'axis':<8} {'work':<7} {'slope':>6}  {'95% interval':<15} {'last':>5}  seconds"
    for (axis, sizes), kind in product(axes.items(), KINDS):
        if (axis, kind) in MEANINGLESS:
            continue
        rows = [times[at(axis, size), kind] for size in sizes]
        rounds = list(zip(*rows, strict=True))
        whole = estimate(Sample([slope(sizes, row) for row in rounds]))
        last = log(median(rows[-1]) / median(rows[-2])) / log(sizes[-1] / sizes[-2])
        low, high = whole.mean - whole.half_width, whole.mean + whole.half_width
        interval = f"[{low:.2f}, {high:.2f}]"
        shown = ", ".join(
            f"{size}: {median(row):.3g}" for size, row in zip(sizes, rows, strict=True)
        )
        numbers = f"{whole.mean:>6.2f}  {interval:<15} {last:>5.2f}"
        yield f"{axis:<8} {kind:<7} {numbers}  {shown}"


def at(axis: str, size: int) -> Setting:
    """Return the base setting with one size changed."""
    return Setting()._replace(**{axis: size})


def measure(options: argparse.Namespace, axes: Mapping[str, Sequence[int]]) -> None:
    """Time all settings in turn and print the table."""
    clock, folder = CLOCKS[options.clock], Path(options.folder)
    settings = list(
        dict.fromkeys(at(a, size) for a, sizes in axes.items() for size in sizes)
    )
    times: dict[tuple[Setting, str], list[float]] = {}
    here = {s: works(s, options.size, folder) for s in settings if s.ranks == 1}
    with ExitStack() as stack, freed_memory_kept():
        groups = {
            setting: stack.enter_context(rank_processes(setting, options))
            for setting in settings
            if setting.ranks > 1
        }
        for number in range(options.rounds + 1):
            start = perf_counter()
            for setting, kind in product(settings, KINDS):
                taken = (
                    slowest(groups[setting], kind)
                    if setting in groups
                    else seconds(here[setting][kind], clock)
                )
                if number:  # the first round warms up
                    times.setdefault((setting, kind), []).append(taken)
            print(f"round {number}: {perf_counter() - start:.1f} s", flush=True)
    print(*table(axes, times), sep="\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes")
    parser.add_argument("--rounds", type=int, help="7, or 3 with --quick")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--size", type=int, default=8, help="side of an image")
    parser.add_argument("--axes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine")
    for axis in SIZES:
        parser.add_argument(f"--{axis}", type=int, nargs="+", metavar="SIZE")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.clock = "processor" if options.cpu_time else "wall"
    if options.rounds < 2:
        parser.error("an interval needs at least 2 rounds")
    usual = QUICK if options.quick else SIZES
    axes = {axis: tuple(getattr(options, axis) or usual[axis]) for axis in options.axes}
    if any(len(set(sizes)) < 2 or min(sizes) < 1 for sizes in axes.values()):
        parser.error("each axis needs at least two sizes from 1")
    torch.set_num_threads(options.threads)
    cores = len(os.sched_getaffinity(0))
    print(
        f"base {Setting()}, images of 3x{options.size}x{options.size}, {options.threads} "
        f"threads a process, {options.clock} seconds. Ranks are gloo processes of this "
        f"machine and share its {cores} cores: more ranks than cores cannot be faster.",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        measure(options, axes)


if __name__ == "__main__":
    main()
