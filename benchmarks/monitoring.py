"""What monitoring a training run costs: PGD-10 steps with and without it, in turns.

Every 10th batch is looked at (gradient norm, moments, Wasserstein distance). A round is one
watched step and one that is not, of the same experiment; the added share of an epoch is

    (watched - plain) / (10 plain),

and the median over the rounds is printed, as is the time of one look at the Hessian.

    python benchmarks/monitoring.py [--rounds 15] [--threads 2]
"""

from pathlib import Path
from statistics import median
from time import perf_counter

from pgd_step import build_case, endless, every_case

from advnorm.progress import Quiet
from advnorm.recipe import override
from advnorm.records import MonitoredStep
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.monitor import Monitor
from advnorm.training.state import State
from advnorm.training.step import Stepper

LIMIT = 0.05
EVERY = 10
CHEAP = "[gradient_norm, moments, wasserstein]"


class InMemoryRun:
    """A run folder that keeps lines in memory."""

    def __init__(self) -> None:
        self.lines: list[MonitoredStep] = []

    def append_monitored(self, line: MonitoredStep) -> None:
        """Keep a line."""
        self.lines.append(line)


def monitored(experiment: Experiment, questions: str) -> Stepper:
    """Return a stepper that monitors the steps whose number divides by EVERY."""
    changes = [f"monitor={{every: {EVERY}, questions: {questions}}}"]
    again = build_experiment(override(experiment.recipe, changes), root=None, device="cpu")
    return Stepper(again, Monitor(again, InMemoryRun(), Quiet()))  # type: ignore[arg-type]


def measure(case: str, folder: Path, rounds: int) -> float:
    """Print one case; return the fraction of an epoch that monitoring adds."""
    experiment = build_case(case, folder)
    batches = endless(experiment)
    cheap, sharp = monitored(experiment, CHEAP), monitored(experiment, "[hessian]")
    looks, plains = [], []
    for index in range(rounds + 2):
        batch = next(batches)
        times = []
        for step in (EVERY * index, EVERY * index + 1):  # the first one is monitored
            start = perf_counter()
            cheap(batch, State(step=step))
            times.append(perf_counter() - start)
        if index >= 2:  # the first two warm up
            looks.append(times[0])
            plains.append(times[1])
    start = perf_counter()
    sharp(next(batches), State())
    hessian = perf_counter() - start - median(plains)
    added = median((a - b) / (EVERY * b) for a, b in zip(looks, plains, strict=True))
    print(
        f"{case}: step {median(plains) * 1e3:.1f} ms, watched {median(looks) * 1e3:.1f}; "
        f"every {EVERY}th adds {added:.2%} (limit {LIMIT:.0%}); one look at the Hessian "
        f"{hessian:.2f} s, every {EVERY}th adds {hessian / EVERY / median(plains):.0%}"
    )
    return added


if __name__ == "__main__":
    every_case(__doc__, measure, LIMIT)
