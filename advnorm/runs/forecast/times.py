"""Counts of a recipe's work times the costs of a calibration."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from advnorm.bounds.box import CERTIFIED_NORMS
from advnorm.bounds.verdicts import CHEAPEST_FIRST
from advnorm.data import DataSet
from advnorm.evaluation import Condition, certificate_condition
from advnorm.recipe import Recipe
from advnorm.runs.evaluate import evaluation_conditions
from advnorm.runs.forecast.calibration import Calibration
from advnorm.runs.forecast.measure import kind_name
from advnorm.runs.forecast.workload import ALL_ROBUST, Accuracies, pieces
from advnorm.runs.plan import counted_experiment, step_kinds
from advnorm.training.build import Experiment
from advnorm.training.components import evaluation_threats, load_data
from advnorm.training.validate import BATCH, FEW, STRONGEST, validation_conditions


class Forecast(NamedTuple):
    """Seconds on this machine; ``None`` where a part was not timed."""

    steps: float | None
    """Of all training steps."""
    validation: float | None
    """Of all validations."""
    other: float
    """Of what comes before the first step, and of checkpoints."""
    evaluation: dict[str, float | None]
    """By condition."""
    certificates: dict[str, float | None]
    """By method and radius."""
    load: float
    """What an evaluation or a certification takes before its first condition."""
    reasons: dict[str, str]
    """Of the parts that were not timed, why."""

    @property
    def training(self) -> float | None:
        """Seconds of the whole training."""
        if self.steps is None or self.validation is None:
            return None
        return self.steps + self.validation + self.other

    @property
    def evaluated(self) -> float | None:
        """Seconds of the whole evaluation."""
        parts = list(self.evaluation.values())
        known = [part for part in parts if part is not None]
        return self.load + sum(known) if len(known) == len(parts) else None


def forecast(
    recipe: Recipe,
    calibration: Calibration,
    assumed: Accuracies = ALL_ROBUST,
    *,
    root: Path | None = None,
) -> Forecast:
    """Return how long the recipe takes on the machine of the calibration."""
    data = load_data(recipe, root=root)
    experiment = counted_experiment(recipe, data)
    reasons: dict[str, str] = {}
    count = min(len(data.test), recipe.evaluation.samples or len(data.test))

    def seconds(
        condition: Condition, samples: int, size: int, begun: set[str]
    ) -> float | None:
        total = 0.0
        for piece in pieces(condition, samples, size, assumed):
            cost = calibration.work.get(piece.work)
            if cost is None:
                reason = calibration.unmeasured.get(piece.work, "not in the calibration")
                reasons[piece.work] = reason
                return None
            first = 0.0 if piece.work in begun else cost.first
            begun.add(piece.work)
            total += first + piece.calls * cost.seconds(piece.rows, piece.passes)
        return total

    def evaluated(conditions: Sequence[Condition]) -> dict[str, float | None]:
        size, begun = recipe.evaluation.batch_size, set[str]()
        return {c.key: seconds(c, count, size, begun) for c in conditions}

    validated = [
        seconds(
            condition, _validated(condition, recipe, data), BATCH, set(calibration.work)
        )
        for condition in validation_conditions(experiment)
    ]
    times = _validations(recipe) if len(data.validation) else 0
    return Forecast(
        steps=_steps(experiment, calibration, reasons),
        validation=_total(validated, times),
        other=calibration.start + recipe.epochs * calibration.save,
        evaluation=evaluated(evaluation_conditions(recipe, data.shape)),
        certificates={
            key: value
            for condition in _certificates(recipe)
            for key, value in evaluated([condition]).items()
        },
        load=calibration.load,
        reasons=reasons,
    )


def _steps(
    experiment: Experiment, calibration: Calibration, reasons: dict[str, str]
) -> float | None:
    """Return the seconds of all training steps."""
    total, rows = 0.0, experiment.batch_size
    for kind, count in step_kinds(experiment).items():
        name = kind_name(kind)
        cost = calibration.steps.get(name)
        if cost is None:
            reasons[f"training steps: {name}"] = "not in the calibration"
            return None
        passes = count.attack / count.steps if kind.attacked else 0
        total += count.steps * cost.seconds(rows, passes)
    return total


def _validated(condition: Condition, recipe: Recipe, data: DataSet) -> int:
    count = min(len(data.validation), recipe.validation.samples or len(data.validation))
    return min(count, FEW) if condition.name in STRONGEST else count


def _validations(recipe: Recipe) -> int:
    """Return how often a training validates: after every k-th epoch and the last."""
    return -(-recipe.epochs // recipe.validation.every)


def _total(parts: Sequence[float | None], times: int) -> float | None:
    known = [part for part in parts if part is not None]
    if not times:
        return 0.0
    return times * sum(known) if len(known) == len(parts) else None


def _certificates(recipe: Recipe) -> list[Condition]:
    threats = [t for t in evaluation_threats(recipe) if t.name in CERTIFIED_NORMS]
    return [certificate_condition(method, t) for method in CHEAPEST_FIRST for t in threats]


def table(forecast: Forecast, calibration: Calibration, assumed: Accuracies) -> str:
    """Return what ``advnorm plan`` prints below its counts."""
    epochs = f"steps {_time(forecast.steps)}, validation {_time(forecast.validation)}"
    lines = [
        "",
        f"this machine: {calibration.machine}",
        f"{'training':<28} {_time(forecast.training):>10}  ({epochs}, other "
        f"{_time(forecast.other)})",
        f"{'evaluation':<28} {_time(forecast.evaluated):>10}",
        *(f"  {key:<26} {_time(value):>10}" for key, value in forecast.evaluation.items()),
        "certificates",
        *(
            f"  {key:<26} {_time(value):>10}"
            for key, value in forecast.certificates.items()
        ),
        f"if {assumed.clean:.0%} of the samples are classified correctly, "
        f"{assumed.robust:.0%} also under attack, and no certificate but the last succeeds",
    ]
    return "\n".join(lines + [f"? {name}: {why}" for name, why in forecast.reasons.items()])


def _time(seconds: float | None) -> str:
    """Write a time.

    >>> [_time(value) for value in (0.1234, 75, 9000, None)]
    ['0.12 s', '1.2 min', '2.5 h', '?']
    """
    if seconds is None:
        return "?"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2f} s"
