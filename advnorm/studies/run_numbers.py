"""The numbers of one run in a study: accuracies, certificates, false robustness, time."""

from collections.abc import Sequence
from typing import NamedTuple

from advnorm.recipe import Recipe
from advnorm.records import Accuracy, Epoch, Result, Run, ThreatRecord

ADVERSARIAL = ("attack", "suite", "curve")
"""The kinds of results whose worst case is the robust accuracy."""
GAP = "false-robustness gap"
TIME = "training minutes"


class RunNumbers(NamedTuple):
    """What a run contributes to a study."""

    run: str
    numbers: dict[str, tuple[float, int | None]]
    """By column: a value, and of accuracies in percent the number of samples."""
    flags: tuple[str, ...]
    branch: str
    """Of a mixture norm: the branch that was tested."""
    seconds: float
    machine: str


def column_of(name: str, threat: ThreatRecord, radii: int) -> str:
    """Return the name of a column; the radius is part of it where there are several."""
    return f"{name}, {threat.norm} {threat.eps:.4g}" if radii > 1 else name


def headline_threat(recipe: Recipe, threats: Sequence[ThreatRecord]) -> ThreatRecord:
    """Return the evaluated threat whose radius is nearest to that of training."""
    return min(threats, key=lambda threat: abs(threat.eps - recipe.threat.eps))


def numbers_of(
    run: Run, recipe: Recipe, results: Sequence[Result]
) -> dict[str, tuple[float, int | None]]:
    """Return the numbers of a run by column."""
    attacked = [r for r in results if r.kind in ADVERSARIAL and r.threat is not None]
    threats = list(dict.fromkeys(r.threat for r in attacked if r.threat is not None))
    if not threats:
        raise ValueError(
            "a study needs an attack: --set evaluation.conditions='[clean, pgd-50]'"
        )
    numbers: dict[str, tuple[float, int | None]] = {}
    for result in results:
        if result.kind == "clean":
            numbers["clean"] = _percent(result.accuracy)
    for threat in threats:
        same = [r for r in attacked if r.threat == threat]
        numbers[column_of("robust", threat, len(threats))] = _percent(worst_case(run, same))
    numbers |= _certified(run, results, attacked, len(threats))
    headline = headline_threat(recipe, threats)
    robust, _ = numbers[column_of("robust", headline, len(threats))]
    gap = _gap(run.epochs(), recipe, headline, robust)
    if gap is not None:
        numbers[GAP] = (gap, None)
    numbers[TIME] = (sum(epoch.seconds for epoch in run.epochs()) / 60, None)
    return numbers


def worst_case(run: Run, results: Sequence[Result]) -> Accuracy:
    """Count the samples that are robust under every result's attack."""
    verdicts = [run.verdicts(result.key).robust for result in results]
    robust = [all(row) for row in zip(*verdicts, strict=True)]
    return Accuracy(correct=sum(robust), n=len(robust))


def _certified(
    run: Run, results: Sequence[Result], attacked: Sequence[Result], radii: int
) -> dict[str, tuple[float, int | None]]:
    """Return certified accuracies: of certificates alone, or of those before attacks."""
    numbers = {}
    for result in results:
        if result.kind == "certificate" and result.threat is not None:
            name = column_of(f"certified, {result.condition}", result.threat, radii)
            numbers[name] = _percent(result.accuracy)
    for result in attacked:
        certified = run.verdicts(result.key).certified
        if certified and result.threat is not None:
            name = column_of("certified", result.threat, radii)
            numbers[name] = _percent(Accuracy(correct=sum(certified), n=len(certified)))
    return numbers


def _gap(
    epochs: Sequence[Epoch], recipe: Recipe, threat: ThreatRecord, robust: float
) -> float | None:
    """Return how far the held-out PGD accuracy of training is above the worst case.

    A gap much larger than the intervals says that training's own measurement of robustness
    was false. Without such a measurement at this radius there is no gap.
    """
    spec = recipe.validation
    same = (
        spec.eps or recipe.threat.eps
    ) == threat.eps and recipe.threat.norm == threat.norm
    if spec.robust != "pgd" or not same:
        return None
    best = [epoch for epoch in epochs if epoch.best]
    chosen = best[-1:] if best and recipe.evaluation.weights == "best" else epochs[-1:]
    for epoch in chosen:
        if epoch.validation_robust is not None:
            return 100 * epoch.validation_robust.fraction - robust
    return None


def _percent(accuracy: Accuracy) -> tuple[float, int | None]:
    return 100 * accuracy.fraction, accuracy.n
