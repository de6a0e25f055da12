"""What ``advnorm plan`` predicts after a calibration, beside what is measured.

    python benchmarks/plan.py [--only NAME...] [--rounds 1] [--threads 2] [--cpu-time]

Each recipe is calibrated in a process of its own, and then trained, evaluated and certified
in another one, which is timed from the call of the function to its end. All of it is on
enlarged digits, so that nothing is downloaded. The time of an evaluation depends on the
accuracies, which nobody knows beforehand: "predicted" takes those that the run turned out
to have, and "longest" takes every sample for robust, as ``advnorm plan`` does by default.
With several rounds, calibrations and runs take turns, and the median is printed. Exits with
1 where a prediction is off by more than 25%.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch

from advnorm.recipe import Recipe, override
from advnorm.records import result_key
from advnorm.runs import certify_run, evaluate_run
from advnorm.runs.forecast import Accuracies, Calibration, calibrate, forecast
from advnorm.training import train

LIMIT = 0.25
CLOCKS = {"wall": perf_counter, "processor": process_time}
COMMON = ["name=digits", "batch_size=64", "threat.eps=0.05", "evaluation.batch_size=120"]
CERTIFICATES = {"mlp": "crown", "cnn, trades": "crown-ibp", "cnn, ibp": "ibp"}
"""The method by recipe; the others have a norm or a depth that is certified by ``ibp``."""
RECIPES = {
    "mlp": [
        "model={name: mlp, options: {depth: 2, width: 256}}",
        "norm.name=batch",
        "epochs=12",
        "evaluation={conditions: [clean, noise-0.2, pgd-50x2, standard], "
        "threat: {eps: 0.05}}",
    ],
    "cnn, trades": [
        "data.size=28",
        "model.name=cnn_small",
        "norm.name=none",
        "objective.name=trades",
        "attack.steps=7",
        "optimizer={name: adam, lr: 1e-3}",
        "epochs=6",
        "evaluation={conditions: [clean, fgsm, apgd_ce-40, apgd_t-10], "
        "threat: {eps: 0.05}}",
    ],
    "cnn, ibp": [
        "data.size=28",
        "model.name=cnn_small",
        "objective={name: ibp, kappa: 0.5}",
        "threat.schedule={kind: ramp, first: 1, last: 4}",
        "optimizer={name: adam, lr: 1e-3}",
        "validation.robust=ibp",
        "epochs=12",
        "evaluation={conditions: [clean, pgd-40], threat: {eps: 0.05}}",
    ],
    "resnet, mixture": [
        "data.size=32",
        "model={name: preact_resnet18, options: {width: 8}}",
        "norm.name=mixture",
        "objective.name=mixed",
        "attack={steps: 5, precision: bfloat16}",
        "epochs=2",
        "evaluation={conditions: [clean, pgd-20, square-200], samples: 120, "
        "threat: {eps: 0.05}}",
    ],
    "wide resnet, group, sam": [
        "data.size=16",
        "model={name: wide_resnet, options: {depth: 10, widen: 2}}",
        "norm={name: group, options: {groups: 4}}",
        "gradient.name=sam",
        "epochs=3",
        "evaluation={conditions: [clean, pgd-20, fab_t-10], samples: 120, "
        "threat: {eps: 0.05}}",
    ],
}


class Measured(NamedTuple):
    """Seconds of the real work, and the accuracies by condition."""

    training: float
    evaluation: float
    certificate: float
    accuracies: dict[str, float]


class Row(NamedTuple):
    """A prediction and what was measured."""

    predicted: float
    measured: float
    longest: float | None = None


def recipe_of(name: str) -> Recipe:
    """Return a recipe by its name here."""
    return override(Recipe(), [*COMMON, *RECIPES[name]])


def prepare(threads: int) -> None:
    """Set a new process up."""
    torch.set_num_threads(threads)


def calibrated(name: str, clock: str) -> Calibration:
    """Calibrate a recipe."""
    return calibrate(recipe_of(name), device="cpu", clock=CLOCKS[clock])


def measured(name: str, clock: str) -> Measured:
    """Train, evaluate and certify a recipe."""
    recipe, now = recipe_of(name), CLOCKS[clock]
    with tempfile.TemporaryDirectory() as folder:
        start = now()
        run = train(recipe, Path(folder) / "run", device="cpu")
        trained = now()
        results = evaluate_run(run, recipe, device="cpu")
        evaluated = now()
        certify_run(run, recipe, method=CERTIFICATES.get(name, "ibp"), device="cpu")
        seconds = (trained - start, evaluated - trained, now() - evaluated)
        accuracies = {
            result_key(r.condition, r.threat): r.accuracy.fraction for r in results
        }
        return Measured(*seconds, accuracies)


def fresh(work: Callable[..., Any], options: argparse.Namespace, name: str) -> Any:
    """Do some work in a process of its own."""
    with ProcessPoolExecutor(
        1, get_context("spawn"), initializer=prepare, initargs=(options.threads,)
    ) as pool:
        return pool.submit(work, name, options.clock).result()


def compare(name: str, calibration: Calibration, real: Measured) -> dict[str, Row]:
    """Return what was predicted and measured."""
    recipe, clean = recipe_of(name), real.accuracies["clean"]
    longest = forecast(recipe, calibration)
    parts = []
    for key, accuracy in real.accuracies.items():
        assumed = Accuracies(clean, min(clean, accuracy))
        parts.append(known(forecast(recipe, calibration, assumed).evaluation[key]))
    method = CERTIFICATES.get(name, "ibp")
    certificates = forecast(recipe, calibration, Accuracies(clean, 0)).certificates
    proof = sum(
        known(seconds)
        for key, seconds in certificates.items()
        if key.startswith(f"{method}_")
    )
    load = calibration.load
    return {
        "training": Row(known(longest.training), real.training),
        "evaluation": Row(load + sum(parts), real.evaluation, known(longest.evaluated)),
        method: Row(load + proof, real.certificate),
    }


def known(seconds: float | None) -> float:
    """Return seconds that must have been predicted."""
    if seconds is None:
        raise ValueError("a part was not timed")
    return seconds


def main() -> None:
    """Calibrate, measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="for a busy machine")
    options = parser.parse_args()
    options.clock = "processor" if options.cpu_time else "wall"
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    print(f"{options.threads} threads, {options.clock} seconds, {options.rounds} rounds")
    print(f"{'recipe':<24} {'part':<11} predicted  measured  ratio   longest  calibration")
    off = False
    for name in options.only:
        rounds, took = list[dict[str, Row]](), list[float]()
        for _ in range(options.rounds):
            calibration = fresh(calibrated, options, name)
            took.append(calibration.took)
            rounds.append(compare(name, calibration, fresh(measured, options, name)))
        for part in rounds[0]:
            rows = [each[part] for each in rounds]
            ratios = sorted(row.predicted / row.measured for row in rows)
            ratio = median(ratios)
            off |= abs(ratio - 1) > LIMIT
            longest = rows[0].longest
            print(
                f"{name:<24} {part:<11} {median(r.predicted for r in rows):>7.2f} s "
                f"{median(r.measured for r in rows):>7.2f} s  {ratio:>5.2f} "
                f"{'' if longest is None else f'{longest:.2f} s':>9} "
                f"{median(took):>8.1f} s  ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )
    raise SystemExit(off)


if __name__ == "__main__":
    main()
