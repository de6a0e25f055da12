"""Times the parts of conditions: passes, attacks of a few steps, certificates."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

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
from advnorm.runs.evaluate import evaluation_conditions
from advnorm.runs.forecast import stopwatch
from advnorm.runs.forecast.calibration import CallCost, Timing
from advnorm.runs.forecast.workload import (
    CLEAN,
    attack_work,
    certificate_work,
    methods_until,
    natural_work,
)
from advnorm.runs.load import first_samples
from advnorm.threat import Threat
from advnorm.training.build import Experiment
from advnorm.training.components import evaluation_threats
from advnorm.training.validate import BATCH, validation_conditions

_QUERIES = 2500
"""Most queries of a search that is timed."""
_FEW = 8
"""Images with which it is tried."""
_SLOW = 0.03
"""Seconds for crown-ibp of one image from which crown is tried only if it is named."""
_TINY = 1e-4
"""Factor of a radius at which attacks break nothing: all steps are taken."""


@dataclass
class ConditionTimer:
    """Times the parts of the conditions of an experiment, each once."""

    experiment: Experiment
    clock: stopwatch.Clock
    work: dict[str, CallCost] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    _cold: dict[str, float] = field(default_factory=dict)
    """What the first call of a piece takes longer than the second."""

    def measure(self) -> None:
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
        affordable = few * stopwatch.LONG / 4 / max(run(_FEW, few), 1e-9)
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
        most = min(size, len(self._samples.labels))
        cold, warm = (run(1, lengths[0]) for _ in range(2))
        self._cold[name] = max(0.0, cold - warm)
        many, longer = 1, lengths[-1] / lengths[0] if lengths[0] else 1
        if longer * warm > stopwatch.LONG:  # one image is all that there is time for
            before = sum(self.work[other].seconds(1) for other in base)
            seconds = max(warm - before, warm / 10)
            return proportional(Timing(1, passes(lengths[0]), seconds))
        while many < most and longer * 4 * run(many, lengths[0]) < stopwatch.LONG:
            many = min(4 * many, most)
        counts = sorted({max(1, many // 4), many})
        pairs = [(rows, steps) for rows in counts for steps in lengths]
        timings = []
        for rows, steps in pairs:
            seconds = stopwatch.repeat(partial(run, rows, steps))
            before = sum(self.work[other].seconds(rows) for other in base)
            timings.append(Timing(rows, passes(steps), max(seconds - before, seconds / 10)))
        return timings

    def _run(self, condition: Condition, rows: int) -> float:
        """Time a condition, reading included; labels are the model's answers."""
        model, answers = self.experiment.model, self._answered(rows).labels
        test, device = self.experiment.data.test, self.experiment.device
        start = self.clock()
        batches = (
            batch._replace(labels=answers)
            for batch in test.batches(torch.arange(rows), batch_size=rows, device=device)
        )
        run_condition(model, batches, condition, total=rows)
        return self.clock() - start

    def _answered(self, rows: int) -> Batch:
        """Return the first samples, with the model's answers for labels."""
        return Batch(*(tensor[:rows] for tensor in self._samples))

    @cached_property
    def _samples(self) -> Batch:
        spec, model = self.experiment.recipe.evaluation, self.experiment.model
        size = max(spec.batch_size, BATCH)
        batch = first_samples(self.experiment.data, size, self.experiment.device)
        images = batch.images.to(search_dtype(model))
        with eval_mode(model), torch.no_grad():
            return Batch(images, logits_of(model)(images).argmax(1), batch.samples)


def proportional(timing: Timing) -> list[Timing]:
    """Return one timing with those of twice the images and twice the passes.

    >>> cost = CallCost.fit(proportional(Timing(1, 10, 5.0)))
    >>> round(cost.seconds(30, 20), 6)
    300.0
    """
    rows, passes, seconds = timing
    return [Timing(n * rows, p * passes, n * p * seconds) for n in (1, 2) for p in (1, 2)]
