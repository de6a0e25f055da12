"""Times short pieces of a recipe's own work on this machine, in a minute or so."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from advnorm.allocator import freed_memory_kept
from advnorm.data import Batch
from advnorm.objectives import CERTIFIED
from advnorm.progress import Progress, Quiet
from advnorm.recipe import AttackSpec, Constant, Recipe, to_yaml
from advnorm.records import Environment, Run
from advnorm.runs.forecast import stopwatch
from advnorm.runs.forecast.calibration import Calibration, CallCost, Machine, Timing, digest
from advnorm.runs.forecast.measure_conditions import ConditionTimer
from advnorm.runs.load import load_run
from advnorm.runs.plan import StepCount, StepKind, step_kinds
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.dry_run import dry_run
from advnorm.training.saver import Saver
from advnorm.training.state import State
from advnorm.training.step import Stepper


def calibrate(
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    clock: stopwatch.Clock = perf_counter,
    progress: Progress | None = None,
) -> Calibration:
    """Time the recipe's work; nothing of it is kept but the numbers."""
    begun, progress = clock(), progress or Quiet()
    experiment = build_experiment(recipe, root=root, device=device)
    dry_run(experiment)
    built = clock() - begun
    timer = _Timer(experiment, clock)
    with torch.random.fork_rng(), freed_memory_kept(next(experiment.model.parameters())):
        progress.line("timing training steps")
        steps, warm = timer.training()
        save, create, load = timer.run_folder(root)
        progress.line("timing attacks and certificates")
        conditions = ConditionTimer(experiment, clock)
        conditions.measure()
    return Calibration(
        recipe=digest(recipe),
        machine=Machine.here(str(experiment.device)),
        start=built + warm + create,
        load=load,
        save=save,
        steps=steps,
        work=conditions.work,
        unmeasured=conditions.unmeasured,
        took=clock() - begun,
    )


def kind_name(kind: StepKind) -> str:
    """Return the name of a kind of training steps."""
    weights = " ".join("-" if w is None else f"{w:g}" for w in kind.weights)
    return f"{'attacked' if kind.attacked else 'clean'} {weights}".strip()


@dataclass
class _Timer:
    """Times the work of one experiment."""

    experiment: Experiment
    clock: stopwatch.Clock

    def training(self) -> tuple[dict[str, CallCost], float]:
        """Return the cost of each kind of step, and what the first takes longer."""
        costs, warm = dict[str, CallCost](), 0.0
        for kind, count in step_kinds(self.experiment).items():
            timings, first = self._steps(kind, count)
            costs[kind_name(kind)] = CallCost.fit(timings)
            warm += max(0.0, first - timings[0].seconds)
        return costs, warm

    def _steps(self, kind: StepKind, count: StepCount) -> tuple[list[Timing], float]:
        """Take steps with attacks of one and of several steps, in turn."""
        recipe, now = self.experiment.recipe, count.first
        several = min(6, max(3, count.longest))  # attack steps
        attacked = kind.attacked and recipe.objective.name not in CERTIFIED
        lengths = (1, several) if attacked else (1,)
        steppers = {
            steps: Stepper(
                replace(
                    self.experiment,
                    recipe=recipe.replace(
                        attack=AttackSpec(steps=steps, steps_schedule=Constant())
                    ),
                )
            )
            for steps in lengths
        }
        batches = self._batches()
        seconds: dict[int, list[float]] = {steps: [] for steps in lengths}
        begun = self.clock()
        while (
            len(seconds[1]) < stopwatch.REPEATS
            or self.clock() - begun < 2 * stopwatch.PATIENCE
        ):
            for steps, stepper in steppers.items():
                start = self.clock()
                stepper(next(batches), State(epoch=now.epoch, seen=now.seen))
                seconds[steps].append(self.clock() - start)
            if self.clock() - begun > 10 * stopwatch.PATIENCE and len(seconds[1]) > 1:
                break
        rows = self.experiment.batch_size
        passes = {steps: steps if attacked else 0 for steps in lengths}
        return [
            Timing(rows, passes[steps], stopwatch.undisturbed(each[1:]))
            for steps, each in seconds.items()
        ], seconds[lengths[0]][0]

    def _batches(self) -> Iterator[Batch]:
        """Read batches as training does, without end."""
        train, size = self.experiment.data.train, self.experiment.batch_size
        order = torch.arange(len(train) // size * size)
        while True:
            yield from train.batches(
                order, batch_size=size, device=self.experiment.device, epoch=0
            )

    def run_folder(self, root: Path | None) -> tuple[float, float, float]:
        """Return the seconds to save an epoch, to begin a run, and to load one."""
        recipe, device = self.experiment.recipe, self.experiment.device
        with tempfile.TemporaryDirectory() as folder:
            facts = Environment.here(device="cpu", threads=torch.get_num_threads())
            path, state = Path(folder) / "run", State()
            start = self.clock()
            run = Run.create(path, to_yaml(recipe), facts)
            saver = Saver(self.experiment, run)
            saver.save(state)
            first, seconds = self.clock() - start, list[float]()
            for step in range(1, 4):
                start = self.clock()
                saver.save_best(step)
                state.step = step
                saver.save(state)
                seconds.append(self.clock() - start)
            start = self.clock()
            load_run(run, recipe, root, device, Quiet())
            return stopwatch.undisturbed(seconds), first, self.clock() - start
