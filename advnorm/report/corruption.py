"""Mean corruption error of a run, from its results and verdicts.

Our own corruptions are results of kind ``corruption``; those of the published files are
clean results on the data sets CIFAR-10-C and MNIST-C.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from advnorm.records import Result, Run, mark_of

_OURS = "corruptions"
_SEVERITIES = {_OURS: 5, "cifar10-c": 5, "mnist-c": 1}
Errors = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class CorruptionSummary:
    """The mean over corruptions, with its 95% interval over the ``n`` samples."""

    kind: str
    branch: str | None
    mean: float
    half: float
    n: int
    by: dict[str, float]
    """Each corruption's error, or its ratio to the baseline's."""
    normalized: bool
    unfinished: str = ""
    """The progress of the run, or of its baseline, if training was not finished."""

    def __str__(self) -> str:
        what = "mCE against the baseline" if self.normalized else "mean corruption error"
        where = f"{self.kind}, {self.branch} branch" if self.branch else self.kind
        return (
            f"{what} ({where}, {len(self.by)} corruptions): {self.mean:.1%} "
            f"[{self.mean - self.half:.1%}, {self.mean + self.half:.1%}] n={self.n}"
            f"{self.unfinished}"
        )


def corruption_errors(run: Run, baseline: Run | None = None) -> list[CorruptionSummary]:
    r"""Return the mean corruption error of each kind of corrupted data that a run has.

    .. math::
        \mathrm{mCE} = \frac1C \sum_c
        \frac{\sum_s E_{s,c}}{\sum_s E^\mathrm{baseline}_{s,c}}, \quad\text{or}\quad
        \frac1C \sum_c \frac15 \sum_s E_{s,c}

    with a baseline (Hendrycks & Dietterich, 2019) or without (galloway2019, section 4).
    Only corruptions with all their severities count; MNIST-C's ``identity`` does not. The
    interval is over samples, each together with all its corruptions.
    """
    summaries = []
    for kind, branch in sorted(_groups(run), key=str):
        errors = _errors(run, kind, branch)
        if errors:
            reference = _errors(baseline, kind, branch) if baseline else None
            summaries.append(_summary(kind, branch, errors, reference, run, baseline))
    return summaries


def _summary(
    kind: str,
    branch: str | None,
    errors: Errors,
    reference: Errors | None,
    run: Run,
    baseline: Run | None,
) -> CorruptionSummary:
    own = np.stack(list(errors.values()))
    base = np.ones_like(own)
    if reference is not None and baseline is not None:
        base = _comparable(errors, reference, run, baseline)
    ratio = own.mean(1) / base.mean(1)
    # The influence of each sample on the mean ratio, to first order.
    influence = ((own - ratio[:, None] * base) / base.mean(1)[:, None]).mean(0)
    n = own.shape[1]
    half = (
        1.959963984540054 * float(influence.std(ddof=1)) / sqrt(n)
        if n > 1
        else float("nan")
    )
    by = dict(zip(errors, map(float, ratio), strict=True))
    mark = _mark(run, kind, branch)
    if baseline is not None:
        mark += _mark(baseline, kind, branch).replace("(", "(baseline ")
    return CorruptionSummary(
        kind, branch, float(ratio.mean()), half, n, by, reference is not None, mark
    )


def _mark(run: Run, kind: str, branch: str | None) -> str:
    """Return the mark of a run that was not finished when it was evaluated."""
    groups = _groups(run).get((kind, branch), {}).values()
    marks = [mark_of(result.training) for group in groups for result in group]
    return next(filter(None, marks), "")


def _comparable(
    errors: Errors, reference: Errors, run: Run, baseline: Run
) -> NDArray[np.float64]:
    missing = [name for name in errors if name not in reference]
    if missing:
        raise ValueError(
            f"the baseline {baseline.path} has no results for {', '.join(missing)}: "
            f"evaluate it under the same conditions as {run.path}"
        )
    base = np.stack([reference[name] for name in errors])
    if base.shape[1] != len(next(iter(errors.values()))):
        raise ValueError(
            f"{run.path} and the baseline {baseline.path} have different numbers of "
            "samples: evaluate both on the same samples"
        )
    perfect = [name for name, row in zip(errors, base, strict=True) if not row.any()]
    if perfect:
        raise ValueError(
            f"the baseline {baseline.path} makes no error on {', '.join(perfect)}, so the "
            "ratio is undefined: use more samples, or leave the baseline out"
        )
    return base


def _groups(run: Run) -> dict[tuple[str, str | None], dict[str, list[Result]]]:
    """Sort the results on corrupted data by kind and branch, then by corruption."""
    groups: dict[tuple[str, str | None], dict[str, list[Result]]] = {}
    for result in run.results():
        name, kind = result.corruption, _corrupted_data(result)
        if name and name != "identity" and kind in _SEVERITIES:
            group = groups.setdefault((kind, result.branch), {})
            group.setdefault(name, []).append(result)
    return groups


def _corrupted_data(result: Result) -> str:
    """Name the corrupted data of a result; empty if there is none, or an attack too."""
    if result.kind == "corruption":
        return "" if result.other else _OURS
    return result.data.partition(":")[0] if result.kind == "clean" else ""


def _errors(run: Run, kind: str, branch: str | None) -> Errors:
    """Return each corruption's error a sample, averaged over severities."""
    groups = _groups(run).get((kind, branch), {})
    complete = {n: group for n, group in groups.items() if len(group) == _SEVERITIES[kind]}
    _check_equal(run, [result for group in complete.values() for result in group])
    return {
        name: np.mean([_wrong(run, result) for result in group], axis=0)
        for name, group in sorted(complete.items())
    }


def _wrong(run: Run, result: Result) -> NDArray[np.float64]:
    verdicts = run.verdicts(result.key).first(result.accuracy.n)
    return 1.0 - np.array(verdicts.robust, dtype=np.float64)


def _check_equal(run: Run, results: Sequence[Result]) -> None:
    if len({(result.weights, result.accuracy.n) for result in results}) > 1:
        raise ValueError(
            f"the corruption results of {run.path} have different weights or numbers of "
            "samples: evaluate all of them again"
        )
