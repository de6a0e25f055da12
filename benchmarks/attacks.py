"""Attacks beside the official AutoAttack, torchattacks and foolbox: verdicts, time, memory.

    python benchmarks/attacks.py RUN... --agree [--official CHECKOUT] [--keep FOLDER]
                                        [--again SEED]
    python benchmarks/attacks.py RUN [--official CHECKOUT] [--samples 100] [--threads 2]

With ``--agree`` the standard suite and the official standard version judge the same test
samples of each run: robust accuracy may differ by 0.2 points, and 0.5% of the verdicts.
``--again`` puts the official code with another seed beside the official code instead, which
shows how much of a difference is chance; it has no limit.
Else the first run's model is attacked by ours and each peer in turn, in one process, and
ratios of times are printed; then how time and memory grow. ``--only`` names parts of that:
suite, attacks, pgd, growth. A peer that cannot be imported is named and left out. Exits
with 1 where a limit is missed.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from agreement import agree
from live_memory import LiveMemory
from passes import bare, count
from peers import (
    OFFICIAL,
    Peer,
    find,
    foolbox_pgd,
    official,
    official_from,
    torchattacks_pgd,
    torchattacks_suite,
)
from torch import nn
from trained_models import TrainedModel, load_trained

import advnorm
from advnorm.attacks import pgd
from advnorm.model_state import frozen_parameters
from advnorm.threat import Linf

SUITE, BARE, GROWTH = 1.7, 1.25, 1.25
Attack = Callable[[nn.Module], object]
Peers = dict[str, Peer]
PARTS = ("suite", "attacks", "pgd", "growth")


def ours(s: TrainedModel, name: str, count: int | None = None) -> Attack:
    """Return our attack on the model's first samples, as a function of the model."""
    return lambda model: advnorm.evaluate(
        model, s.images[:count], s.labels[:count], s.threat, conditions=[name]
    )


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Time a call; the fastest of several."""
    durations = []
    for _ in range(times):
        start = perf_counter()
        work()
        durations.append(perf_counter() - start)
    return min(durations)


def line(what: str, value: float, text: str, *, least: float = 0, most: float = 0) -> bool:
    """Print one row of the table; return whether the limit is kept."""
    good = (not least or value >= least) and (not most or value <= most)
    limit = f">= {least:g}" if least else f"<= {most:g}"
    print(
        f"| {what} | {value:.2f} | {limit}{'' if good else ' MISSED'} | {text} |",
        flush=True,
    )
    return good


def pgd_40(s: TrainedModel) -> Attack:
    """Return our PGD alone, without the engine around it, as the peers' is alone."""

    def attack(model: nn.Module) -> None:
        size = 2.5 * s.threat.eps / 40
        with frozen_parameters(model):
            pgd(model, s.images, s.labels, s.threat, steps=40, step_size=size)

    return attack


def against(s: TrainedModel, name: str, attack: Attack, peers: Peers, least: float) -> bool:
    """Compare one of our attacks with the peers' by time; the fast ones, best of 5."""
    times = 5 if name == "pgd-40" else 1
    own, good = seconds(partial(attack, s.model), times), True
    for title, peer in peers.items():
        theirs = seconds(partial(peer, s.model, s.images, s.labels, s.threat), times)
        text = f"{title} {theirs:.2f} s, ours {own:.2f} s"
        good &= line(f"{name} against {title}", theirs / own, text, least=least)
    return good


def against_bare(s: TrainedModel, name: str) -> bool:
    """Compare the time of an attack with that of its own passes."""
    attack = ours(s, name)
    passes = count(s.model, attack)
    own = seconds(lambda: attack(s.model))
    floor = seconds(lambda: bare(s.model, s.images, passes))
    rows = sum(size * times for (size, _), times in passes.items())
    text = (
        f"{own:.2f} s, {sum(passes.values())} passes of {rows} images alone {floor:.2f} s"
    )
    return line(f"{name} over its bare passes", own / floor, text, most=BARE)


def suite(s: TrainedModel, there: Peers) -> bool:
    """Compare the standard suite."""
    return against(s, "standard", ours(s, "standard"), there, SUITE) & against_bare(
        s, "standard"
    )


def attacks(s: TrainedModel, there: bool) -> bool:
    """Compare each attack of the suite, alone on the same samples."""
    if not there:
        return True
    return all(
        [against(s, n, ours(s, n), {"official": official(n)}, 1.0) for n in OFFICIAL]
    )


def growth(s: TrainedModel) -> bool:
    """Time against samples and steps; peak of live memory against steps, eps, restarts."""
    half, good = len(s.labels) // 2, True
    for name in ("apgd_ce-40", "fab_t-10", "square-400"):
        works = ours(s, name, half), ours(s, name)
        good &= doubled(f"{name}: time, samples x2, a sample", s.model, works)
    for few, many in (("apgd_ce-40", "apgd_ce-80"), ("square-400", "square-800")):
        good &= doubled(
            f"{many}: time, steps x2, a step", s.model, (ours(s, few), ours(s, many))
        )
    for few, many in (
        ("apgd_ce-10", "apgd_ce-40"),
        ("fab_t-3", "fab_t-12"),
        ("square-10", "square-90"),
        ("pgd-5", "pgd-40"),
        ("pgd-5", "pgd-5x4"),
    ):
        good &= memory(s, few, many)
    return good & memory_of_radii(s)


def doubled(what: str, model: nn.Module, works: tuple[Attack, Attack]) -> bool:
    """Compare the time of an attack with that of one twice as large."""
    base, more = (seconds(partial(work, model), 2) for work in works)
    return line(what, more / base / 2, f"{base:.2f} s, {more:.2f} s", most=GROWTH)


def peak(s: TrainedModel, name: str, eps: list[float]) -> float:
    """Return the peak of live memory of an attack, in MB."""
    with LiveMemory() as live:
        advnorm.evaluate(s.model, s.images, s.labels, Linf(eps), conditions=[name])
    return live.megabytes


def memory(s: TrainedModel, few: str, many: str) -> bool:
    """Compare the peaks of a short and a long attack."""
    base, more = (peak(s, name, [s.threat.eps]) for name in (few, many))
    text = f"{base:.1f} MB, {more:.1f} MB"
    return line(f"{many} over {few}: peak memory", more / base, text, most=1.02)


def memory_of_radii(s: TrainedModel) -> bool:
    """Compare the peaks of one radius and of four."""
    radii = [s.threat.eps * share for share in (0.25, 0.5, 0.75, 1.0)]
    base, more = peak(s, "pgd-5", radii[-1:]), peak(s, "pgd-5", radii)
    text = f"{base:.1f} MB, {more:.1f} MB"
    return line("4 radii over 1: peak memory", more / base, text, most=1.02)


def compare(s: TrainedModel, parts: list[str]) -> bool:
    """Print the table of the parts asked for."""
    there = {name: bool(find(name)) for name in ("autoattack", "torchattacks", "foolbox")}
    for name, is_there in there.items():
        if not is_there:
            print(f"{name} cannot be imported: not compared")
    print("| what | ratio | limit | times |\n|---|---|---|---|")
    suites = {"autoattack": official(), "torchattacks": torchattacks_suite}
    pgds = {"torchattacks": torchattacks_pgd(40), "foolbox": foolbox_pgd(40)}
    suites, pgds = ({k: p for k, p in d.items() if there[k]} for d in (suites, pgds))
    works: dict[str, Callable[[], bool]] = {
        "attacks": lambda: attacks(s, there["autoattack"]),
        "pgd": lambda: against(s, "pgd-40", pgd_40(s), pgds, 1.0),
        "suite": lambda: suite(s, suites),
        "growth": lambda: growth(s),
    }
    return all([work() for part, work in works.items() if part in parts])


def main() -> None:
    """Compare; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders")
    parser.add_argument("--agree", action="store_true")
    parser.add_argument("--official", type=Path, help="a checkout of the official code")
    parser.add_argument("--keep", type=Path, help="keeps the official verdicts (--agree)")
    parser.add_argument("--again", type=int, metavar="SEED", help="the peer against itself")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    official_from(arguments.official)
    samples = arguments.samples or (1000 if arguments.agree else 100)
    models = [load_trained(run, arguments.data, samples) for run in arguments.runs]
    if arguments.agree:
        good = agree(models, arguments.keep, again=arguments.again)
    else:
        good = compare(models[0], arguments.only)
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
