"""The measurements of a run's weights, for model cards and model zoos."""

from dataclasses import dataclass

from advnorm.recipe import Recipe, read
from advnorm.records import Audit, Result, Run, TrainingProgress, mark_of
from advnorm.runs.export.source import ExportRequest
from advnorm.training import checkpoints
from advnorm.training.completion import read_completion


@dataclass(frozen=True)
class MeasuredRun:
    """The results and audits of one checkpoint of a run."""

    run: Run
    recipe: Recipe
    weights: str
    training: TrainingProgress | None
    results: tuple[Result, ...]
    audits: tuple[Audit, ...]
    outdated: int
    """Results of other weights, which are left out."""

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.run.path.resolve().name

    @property
    def mark(self) -> str:
        """What is said of a run that is not finished; else empty."""
        return mark_of(self.training).strip()

    def of_branch(self, branch: str | None) -> "list[Result]":
        """Return the results on the run's own data: of a branch, where there are any."""
        own = [result for result in self.results if not result.other]
        if not any(result.branch for result in own):
            return own
        return [result for result in own if result.branch == branch]


def measured_run(request: ExportRequest, to: str) -> MeasuredRun:
    """Read what was measured of a run; neither weights nor data are loaded."""
    if not isinstance(request.subject, Run):
        raise ValueError(
            f"--to {to} writes what was measured of a run: give a run folder, and measure "
            "it first with advnorm evaluate"
        )
    run = request.subject
    recipe = request.recipe or read(run.path / "recipe.yaml")
    weights = checkpoints.newest(run.checkpoints, request.weights)
    if not weights:
        raise FileNotFoundError(f"{run.path} has no {request.weights!r} weights: train it")
    results = run.results()
    current = sorted((r for r in results if r.weights == weights), key=_order)
    return MeasuredRun(
        run,
        recipe,
        weights,
        read_completion(run, recipe.epochs),
        tuple(current),
        tuple(audit for audit in run.audits() if audit.weights == weights),
        len(results) - len(current),
    )


def _order(result: Result) -> tuple[bool, bool, str, float, str]:
    """Sort: own data first, then without an adversary, by condition, radius, branch."""
    eps = result.threat.eps if result.threat else 0.0
    attacked = result.threat is not None
    return result.other, attacked, result.condition, eps, result.branch or ""
