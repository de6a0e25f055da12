"""Times short pieces of a recipe's own work on this machine, in a minute or so."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from advnorm.allocator import freed_memory_kept
from advnorm.attacks import AttackName
from advnorm.bounds import certify
from advnorm.bounds.box import CERTIFIED_NORMS
from advnorm.bounds.verdicts import CHEAPEST_FIRST
from advnorm.data import Batch
from advnorm.evaluation import Condition, parse_conditions, run_condition
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.conditions import search_in
from advnorm.evaluation.engine import logits_of, search_dtype
from advnorm.evaluation.stages import Certificate
from advnorm.model_state import eval_mode
from advnorm.objectives import CERTIFIED
from advnorm.progress import Progress, Quiet
from advnorm.recipe import AttackSpec, Constant, Recipe, to_yaml
from advnorm.records import Environment, Run
from advnorm.runs.evaluate import evaluation_conditions
from advnorm.runs.forecast.calibration import Calibration, CallCost, Machine, Timing, digest
from advnorm.runs.forecast.workload import (
    CLEAN,
    attack_work,
    certificate_work,
    methods_until,
    natural_work,
)
from advnorm.runs.load import first_samples, load_run
from advnorm.runs.plan import StepCount, StepKind, step_kinds
from advnorm.threat import Threat
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.components import evaluation_threats
from advnorm.training.dry_run import dry_run
from advnorm.training.saver import Saver
from advnorm.training.state import State
from advnorm.training.step import Stepper
from advnorm.training.validate import BATCH, validation_conditions

Clock = Callable[[], float]
_REPEATS = 5
_PATIENCE = 1.5
"""Seconds for the repeats of one piece, after the first."""
_LONG = 6.0
"""Seconds of a call that may be expected before it is tried."""
_QUERIES = 2500
"""Most queries of a search that is timed."""
_FEW = 8
"""Images with which it is tried."""
_SLOW = 0.3
"""Seconds for crown-ibp of one image from which crown is tried only if it is named."""
_TINY = 1e-4
"""Factor of a radius at which attacks break nothing: all steps are taken."""


def calibrate(
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    clock: Clock = perf_counter,
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
        timer.conditions()
    return Calibration(
        recipe=digest(recipe),
        machine=Machine.here(str(experiment.device)),
        start=built + warm + create,
        load=load,
        save=save,
        steps=steps,
        work=timer.work,
        unmeasured=timer.unmeasured,
        took=clock() - begun,
    )


def kind_name(kind: StepKind) -> str:
    """Return the name of a kind of training steps."""
    weights = " ".join("-" if w is None else f"{w:g}" for w in kind.weights)
    return f"{'attacked' if kind.attacked else 'clean'} {weights}".strip()


def undisturbed(seconds: Sequence[float]) -> float:
    """Return the lower quartile: other work on the machine only ever slows a run down.

    >>> undisturbed([9.0, 2.0, 1.0, 3.0, 4.0])
    2.0
    """
    return sorted(seconds)[len(seconds) // 4]


@dataclass
class _Timer:
    """Times the work of one experiment."""

    experiment: Experiment
    clock: Clock
    work: dict[str, CallCost] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    _cold: dict[str, float] = field(default_factory=dict)
    """What the first call of a piece takes longer than the second."""

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
        while len(seconds[1]) < _REPEATS or self.clock() - begun < 2 * _PATIENCE:
            for steps, stepper in steppers.items():
                start = self.clock()
                stepper(next(batches), State(epoch=now.epoch, seen=now.seen))
                seconds[steps].append(self.clock() - start)
            if self.clock() - begun > 10 * _PATIENCE and len(seconds[1]) > 1:
                break
        rows = self.experiment.batch_size
        passes = {steps: steps if attacked else 0 for steps in lengths}
        return [
            Timing(rows, passes[steps], undisturbed(each[1:]))
            for steps, each in seconds.items()
        ], seconds[lengths[-1]][0]

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
            return undisturbed(seconds), first, self.clock() - start

    def conditions(self) -> None:
        """Time all parts of the conditions of validation, evaluation and certificates."""
        recipe, data = self.experiment.recipe, self.experiment.data
        size = recipe.evaluation.batch_size
        self._time(validation_conditions(self.experiment), BATCH)
        self._time(evaluation_conditions(recipe, data.shape), size)
        for method in CHEAPEST_FIRST:  # crown last, and not where it is slow
            for threat in evaluation_threats(recipe):
                if threat.name in CERTIFIED_NORMS and not self._is_slow(method):
                    self._certificate(method, threat, size)

    def _is_slow(self, method: str) -> bool:
        costs = [c for name, c in self.work.items() if name.startswith("crown-ibp ")]
        refused = any(name.startswith("ibp ") for name in self.unmeasured)
        slow = any(cost.row + cost.row_step > _SLOW for cost in costs)
        return refused or (method == "crown" and slow)

    def _time(self, conditions: Iterable[Condition], size: int) -> None:
        for condition in conditions:
            natural = replace(condition, stages=(), attacks=(), threat=None)
            self._add(natural_work(condition), partial(self._first, natural), size)
            for stage in condition.stages:
                if isinstance(stage, Certificate):
                    for method in methods_until(stage.method):
                        self._certificate(method, stage.threat, size)
            if condition.name == RADII:
                self.unmeasured[RADII] = "the search ends where it meets a boundary"
            elif condition.searches:
                for attack in condition.attacks:
                    self._attack(attack, condition, size)

    def _first(self, condition: Condition, rows: int, steps: int) -> float:
        """Time a condition that takes no steps."""
        del steps
        return self._run(condition, rows)

    def _certificate(self, method: str, threat: Threat, size: int) -> None:
        def run(rows: int, steps: int) -> float:
            """Bound all images: none is certified by a cheaper method before."""
            del steps
            few = self._answered(rows)
            with eval_mode(self.experiment.model):
                start = self.clock()
                certify(
                    self.experiment.model, few.images, few.labels, threat, method=method
                )
                return self.clock() - start

        base = () if method == "ibp" else (certificate_work("ibp", threat),)
        self._add(certificate_work(method, threat), run, size, base=base)

    def _attack(self, attack: AttackName, condition: Condition, size: int) -> None:
        name, threat = attack_work(attack, condition), condition.threat
        assert threat is not None
        weak = threat if threat.name == "l0" else threat.scaled(_TINY)
        words = "".join(
            f"+{word}" + (f"={value:g}" if value is not None else "")
            for word, value in attack.options.items()
            if word not in ("last", "step", "ratio")
        )

        def run(rows: int, steps: int) -> float:
            number = f"-{steps}" if attack.steps else ""
            text = f"{attack.entry.name}{number}{words}"
            (short,) = parse_conditions([text], [weak], weak.bounds)
            return self._run(search_in([short], condition.precision)[0], rows)

        lengths = self._lengths(attack, run)
        self._add(name, run, size, lengths, attack.entry.passes, [CLEAN])

    def _lengths(self, attack: AttackName, run: Callable[[int, int], float]) -> list[int]:
        """Return two numbers of steps; a search by queries slows down as fewer succeed."""
        if not attack.steps:
            return [0]
        if attack.entry.needs == "gradients":
            return [4, 12]
        most = min(attack.steps, _QUERIES)
        few = min(most, 100)
        run(_FEW, few)  # the first warms up
        affordable = few * _LONG / 4 / max(run(_FEW, few), 1e-9)
        longest = int(min(most, max(2 * few, affordable)))
        return [max(1, longest // 4), max(2, longest)]

    def _add(
        self,
        name: str,
        run: Callable[[int, int], float],
        size: int,
        lengths: Sequence[int] = (1,),
        passes: Callable[[int], int] = lambda steps: steps,
        base: Sequence[str] = (),
    ) -> None:
        """Time a piece of work with few and many images, and few and many steps.

        What it does first, and is of another name, is in ``base``.
        """
        if name in self.work or name in self.unmeasured:
            return
        try:
            timings = self._timings(name, run, size, lengths, passes, base)
        except (ValueError, NotImplementedError, RuntimeError) as error:
            self.unmeasured[name] = str(error)
        else:
            cost = CallCost.fit(timings)
            self.work[name] = cost.model_copy(update={"first": self._cold[name]})

    def _timings(
        self,
        name: str,
        run: Callable[[int, int], float],
        size: int,
        lengths: Sequence[int],
        passes: Callable[[int], int],
        base: Sequence[str],
    ) -> list[Timing]:
        most = min(size, len(self._samples().labels))
        many, longer = min(4, most), lengths[-1] / lengths[0] if lengths[0] else 1
        cold, warm = (run(many, lengths[0]) for _ in range(2))
        self._cold[name] = max(0.0, cold - warm)
        while many < most and longer * 4 * run(many, lengths[0]) < _LONG:
            many = min(4 * many, most)
        counts = sorted({max(1, many // 4), many})
        pairs = [(rows, steps) for rows in counts for steps in lengths]
        timings = []
        for rows, steps in pairs:
            seconds = self._repeat(partial(run, rows, steps))
            before = sum(self.work[other].seconds(rows) for other in base)
            timings.append(Timing(rows, passes(steps), max(seconds - before, seconds / 10)))
        return timings

    def _repeat(self, run: Callable[[], float]) -> float:
        """Return the seconds of an undisturbed run of several, fewer if they take long."""
        seconds = [run()]
        if seconds[0] < _PATIENCE:
            seconds = []  # the first warmed up
        while len(seconds) < _REPEATS and (not seconds or sum(seconds) < _PATIENCE):
            seconds.append(run())
        return undisturbed(seconds)

    def _run(self, condition: Condition, rows: int) -> float:
        """Time a condition on the first samples, with the model's answers for labels."""
        few = self._answered(rows)
        start = self.clock()
        run_condition(self.experiment.model, [few], condition, total=rows)
        return self.clock() - start

    def _answered(self, rows: int) -> Batch:
        """Return the first samples, with the model's answers for labels."""
        few, model = (
            Batch(*(tensor[:rows] for tensor in self._samples())),
            self.experiment.model,
        )
        images = few.images.to(search_dtype(model))
        with eval_mode(model), torch.no_grad():
            return Batch(images, logits_of(model)(images).argmax(1), few.samples)

    def _samples(self) -> Batch:
        data, size = self.experiment.data, self.experiment.recipe.evaluation.batch_size
        return first_samples(data, max(size, BATCH), self.experiment.device)
