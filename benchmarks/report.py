"""How large a report is, how long it takes to write, and how soon a browser can use it.

Synthetic run folders, written by the classes that write real ones: four norms with two
seeds each, under five conditions (clean, noise, PGD, the `standard` suite, a certificate),
with 30 epochs, a diagnosis and example images of 3x32x32 pixels. Each number is the median
over rounds, with the smallest and the largest.

- write: `advnorm.report.write`, in this process, after one report that warms up;
- open: from the navigation to the load event, in a new tab of a headless Chromium;
- use: until a first sort, by a press of Enter on a heading, is drawn (open included);
- processor: the time for which a processor worked, which other work does not lengthen: of
  this process in writing, of the page's main thread in opening and sorting.

    python benchmarks/report.py [--rounds 5] [--samples 10000] [--runs 8] [--docs]

`--docs` times `make docs` too, from nothing and where all is built.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors.numpy import save as dump_tensors

from advnorm import report
from advnorm.records import (
    Accuracy,
    Diagnosis,
    Environment,
    Epoch,
    Panel,
    Result,
    Run,
    Series,
    ThreatRecord,
    Verdicts,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))

from chromium import Browser  # noqa: E402

LIMITS = {"MB": 2.0, "write": 10.0, "use": 2.0}
CLASSES = 10
NORMS = {"batch": 1.2, "mixture": 1.5, "group": 1.3, "none": 1.0}
"""Each norm, and how far its samples are from the boundary on average."""
STANDARD = ("apgd_ce-100", "apgd_t-100", "fab_t-100", "square-5000")
CONDITIONS = {
    "clean": ("clean", 0.0, ()),
    "noise-0.1": ("noise", 0.1, ()),
    "pgd-20": ("attack", 4 / 255, ("pgd-20",)),
    "standard": ("suite", 8 / 255, STANDARD),
    "crown": ("certificate", 2 / 255, ()),
}
"""Kind, strength and attacks of each condition."""
EPOCHS = 30
EXAMPLES = 16
Generator = np.random.Generator


def make_run(folder: Path, norm: str, seed: int, samples: int) -> Run:
    """Write a run folder of one norm and seed."""
    recipe = {
        "name": f"cifar10-{norm}",
        "seed": seed,
        "epochs": EPOCHS,
        "data": {"name": "cifar10"},
        "model": {"name": "preact_resnet18", "options": {"width": 16}},
        "norm": {"name": norm},
        "objective": {"name": "pgd"},
        "threat": {"norm": "linf", "eps": "8/255"},
    }
    environment = Environment.here(device="cpu", threads=1, ranks=1, launch="")
    run = Run.create(folder / f"{norm}-{seed}", yaml.safe_dump(recipe), environment)
    random = np.random.default_rng((list(NORMS).index(norm), seed))
    difficulty = np.random.default_rng(0).standard_normal(samples)  # of the data itself
    margins = NORMS[norm] + 0.8 * difficulty + 0.6 * random.standard_normal(samples)
    for condition, (kind, strength, attacks) in CONDITIONS.items():
        _condition(run, condition, kind, strength, attacks, margins, random)
    for epoch in range(EPOCHS):
        run.append_epoch(_epoch(epoch, float(NORMS[norm]), random))
    run.write_diagnosis(_diagnosis(norm, random))
    return run


def _condition(
    run: Run,
    condition: str,
    kind: str,
    strength: float,
    attacks: tuple[str, ...],
    margins: NDArray[np.float64],
    random: Generator,
) -> None:
    """Write result, verdicts and examples of one condition."""
    labels = np.arange(len(margins)) % CLASSES
    right = margins > 0
    robust = margins > 40 * strength if kind != "noise" else margins > strength
    wrong = (labels + random.integers(1, CLASSES, len(labels))) % CLASSES
    by = (
        np.where(right & ~robust, random.choice(attacks, len(labels)), "")
        if attacks
        else ()
    )
    attacked = kind in ("attack", "suite", "certificate")
    certificate = kind == "certificate"
    result = Result(
        condition=condition,
        kind=kind,
        threat=ThreatRecord(norm="linf", eps=strength) if attacked else None,
        accuracy=Accuracy(correct=int(robust.sum()), n=len(robust)),
        data="cifar10",
        weights="best-00000030 sha256:0123456789abcdef",
        seed=0,
        seconds=60.0,
    )
    predictions = np.where(right if certificate else robust, labels, wrong)
    verdicts = Verdicts(
        samples=tuple(range(len(labels))),
        labels=tuple(labels.tolist()),
        predictions=tuple(predictions.tolist()),
        robust=tuple(robust.tolist()),
        by=tuple(map(str, by)) or ("",) * len(labels),
        certified=tuple(robust.tolist()) if certificate else (),
    )
    run.write_result(result)
    run.write_verdicts(result.key, verdicts)
    if attacks:
        run.write_examples(result.key, _examples(strength, robust, predictions, random))


def _examples(
    strength: float,
    robust: NDArray[np.bool_],
    predictions: NDArray[np.int64],
    random: Generator,
) -> bytes:
    """Make smooth images, and noise of the radius on them."""
    coarse = random.random((EXAMPLES, 3, 4, 4), dtype=np.float32)
    clean = coarse.repeat(8, axis=2).repeat(8, axis=3)
    noise = np.sign(random.standard_normal(clean.shape, dtype=np.float32))
    labels = np.arange(EXAMPLES) % CLASSES
    return dump_tensors(
        {
            "clean": clean,
            "adversarial": np.clip(clean + np.float32(strength) * noise, 0, 1),
            "labels": labels,
            "clean_predictions": labels,
            "adversarial_predictions": predictions[:EXAMPLES],
            "samples": np.arange(EXAMPLES),
        }
    )


def _epoch(epoch: int, level: float, random: Generator) -> Epoch:
    """Make a line of a training curve."""
    share = 0.4 * level * (1 - np.exp(-(epoch + 1) / 8)) + 0.01 * random.random()
    robust = Accuracy(correct=round(1000 * share), n=1000)
    return Epoch(
        epoch=epoch,
        step=390 * (epoch + 1),
        lr=0.1,
        eps=8 / 255,
        loss=float(2.3 - 2 * share),
        train=robust,
        validation_clean=Accuracy(correct=round(1400 * share), n=1000),
        validation_robust=robust,
        best=epoch == EPOCHS - 1,
        seconds=30.0,
    )


def _diagnosis(norm: str, random: Generator) -> Diagnosis:
    """Make the answer to a question with one number and two curves."""
    steps = tuple(float(step) for step in range(50))
    lines = tuple(
        Series(name=name, x=steps, y=tuple(np.cumsum(random.random(50)).tolist()))
        for name in ("clean", "adversarial")
    )
    return Diagnosis(
        question="smoothness",
        source="synthetic",
        reading=f"A synthetic answer about {norm}.",
        numbers={"largest": float(random.random())},
        panels=(Panel(kind="lines", title="loss along the gradient", series=lines),),
    )


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = perf_counter()
    work()
    return perf_counter() - start


def opened(browser: Browser, path: Path) -> tuple[float, float, float]:
    """Return the seconds to the load event, and until a first sort is drawn.

    The third are those for which the processor worked on the page's main thread.
    """
    page = browser.open("about:blank")
    page.call("Performance.enable", timeDomain="threadTicks")
    heading = "document.querySelector('table th button').focus()"
    start = perf_counter()
    page.go(path.as_uri())
    page.value(heading)
    page.press("Enter")
    used = perf_counter() - start
    assert page.value("document.querySelector('th[aria-sort]') !== null"), "nothing sorted"
    loaded = page.value("performance.getEntriesByType('navigation')[0].loadEventEnd")
    metrics = page.call("Performance.getMetrics")["metrics"]
    (busy,) = (entry["value"] for entry in metrics if entry["name"] == "TaskDuration")
    return loaded / 1000, used, busy


def spread(values: Sequence[float]) -> str:
    """Write the median and the ends."""
    return f"{median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def measure(runs: list[Run], folder: Path, rounds: int) -> bool:
    """Write and open the report of some runs; return whether a limit is exceeded."""
    out = folder / "report.html"
    first = seconds(lambda: report.write(runs, out))
    start = process_time()
    writes = [seconds(lambda: report.write(runs, out)) for _ in range(rounds)]
    busy = (process_time() - start) / rounds
    browser = Browser(folder / "profile")
    try:
        opened(browser, out)  # the first one warms up
        loads, uses, tasks = zip(
            *(opened(browser, out) for _ in range(rounds)), strict=True
        )
    finally:
        browser.close()
    megabytes = out.stat().st_size / 1e6
    limits = {name: f"(limit {limit:.0f})" for name, limit in LIMITS.items()}
    print(
        f"{len(runs)} run{'s' if len(runs) > 1 else ''}: {megabytes:.2f} MB, "
        f"{megabytes / len(runs):.2f} a run {limits['MB']}\n"
        f"  write {spread(writes)} {limits['write']}, the first {first:.2f} s, "
        f"processor {busy:.2f} s\n"
        f"  open {spread(loads)}\n"
        f"  use {spread(uses)} {limits['use']}, processor {median(tasks):.2f} s"
    )
    return (
        megabytes / len(runs) > LIMITS["MB"]
        or median(writes) > LIMITS["write"]
        or median(uses) > LIMITS["use"]
    )


def build_docs() -> None:
    """Print how long the site takes to build, from nothing and where nothing changed."""
    make = ["make", "docs"]
    shutil.rmtree(ROOT / "docs" / "_build", ignore_errors=True)
    times = [
        seconds(lambda: subprocess.run(make, cwd=ROOT, check=True, capture_output=True))
        for _ in range(2)
    ]
    print(f"make docs: {times[0]:.1f} s from nothing, {times[1]:.1f} s again")


def main() -> None:
    """Measure one run and all of them; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--docs", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = product(NORMS, range(arguments.runs))
        kinds = sorted(every, key=lambda kind: kind[1])[: arguments.runs]
        runs = [make_run(folder, *kind, arguments.samples) for kind in kinds]
        print(f"{arguments.samples:,} samples, {len(CONDITIONS)} conditions")
        over = [measure(part, folder, arguments.rounds) for part in (runs[:1], runs)]
    if arguments.docs:
        build_docs()
    raise SystemExit(any(over))


if __name__ == "__main__":
    main()
