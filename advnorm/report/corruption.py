"""Mean corruption error of a run, from its results and verdicts.

Ours are the results ``corruption-NAME-SEVERITY``; those of the published files are clean
results on ``cifar10-c:NAME:SEVERITY`` and ``mnist-c:NAME``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from advnorm.records import Result, Run, mark_of

_LEVELS = {"corruptions": 5, "cifar10-c": 5, "mnist-c": 1}
_OURS = re.compile(r"corruption-(?P<name>[a-z_]+)-[1-5]")
_THEIRS = re.compile(r"(?P<kind>cifar10-c|mnist-c):(?P<name>[a-z_]+)(:[1-5])?")
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
    """How far the run was, or its baseline, where training was not finished."""

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
    Only corruptions with all their severities count, and MNIST-C's ``identity`` does not.
    The interval takes the samples as drawn, together with all their corruptions.
    """
    found = []
    for kind, branch in sorted(_groups(run), key=str):
        errors = _errors(run, kind, branch)
        if errors:
            reference = _errors(baseline, kind, branch) if baseline else None
            found.append(_summary(kind, branch, errors, reference, run, baseline))
    return found


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
    # The change of the mean ratio with each sample, to first order.
    moved = ((own - ratio[:, None] * base) / base.mean(1)[:, None]).mean(0)
    n = own.shape[1]
    half = 1.959963984540054 * float(moved.std(ddof=1)) / sqrt(n) if n > 1 else float("nan")
    by = dict(zip(errors, map(float, ratio), strict=True))
    mark = _mark(run, kind, branch)
    if baseline is not None:
        mark += _mark(baseline, kind, branch).replace("(", "(baseline ")
    return CorruptionSummary(
        kind, branch, float(ratio.mean()), half, n, by, reference is not None, mark
    )


def _mark(run: Run, kind: str, branch: str | None) -> str:
    """Say how far a run was when its results on corrupted data were measured."""
    groups = _groups(run).get((kind, branch), {}).values()
    marks = [mark_of(result.training) for group in groups for result in group]
    return next(filter(None, marks), "")


def _comparable(
    errors: Errors, reference: Errors, run: Run, baseline: Run
) -> NDArray[np.float64]:
    lacking = [name for name in errors if name not in reference]
    if lacking:
        raise ValueError(
            f"the baseline {baseline.path} has no results for {', '.join(lacking)}: "
            f"evaluate it with the same attacks as {run.path}"
        )
    base = np.stack([reference[name] for name in errors])
    if base.shape[1] != len(next(iter(errors.values()))):
        raise ValueError(
            f"{run.path} and the baseline {baseline.path} have other numbers of samples: "
            "evaluate both with the same samples"
        )
    perfect = [name for name, row in zip(errors, base, strict=True) if not row.any()]
    if perfect:
        raise ValueError(
            f"the baseline {baseline.path} makes no error on {', '.join(perfect)}, so that "
            "no ratio to it exists: take more samples, or leave the baseline out"
        )
    return base


def _groups(run: Run) -> dict[tuple[str, str | None], dict[str, list[Result]]]:
    """Sort the results on corrupted data by kind and branch, then by corruption."""
    groups: dict[tuple[str, str | None], dict[str, list[Result]]] = {}
    for result in run.results():
        ours, theirs = _OURS.fullmatch(result.condition), _THEIRS.match(result.data)
        if ours and not result.other:
            place, name = ("corruptions", result.branch), ours["name"]
        elif theirs and result.condition == "clean" and theirs["name"] != "identity":
            place, name = (theirs["kind"], result.branch), theirs["name"]
        else:
            continue
        groups.setdefault(place, {}).setdefault(name, []).append(result)
    return groups


def _errors(run: Run, kind: str, branch: str | None) -> Errors:
    """Return each corruption's error a sample, averaged over severities."""
    found = _groups(run).get((kind, branch), {})
    whole = {name: group for name, group in found.items() if len(group) == _LEVELS[kind]}
    _alike(run, [result for group in whole.values() for result in group])
    return {
        name: np.mean([_wrong(run, result) for result in group], axis=0)
        for name, group in sorted(whole.items())
    }


def _wrong(run: Run, result: Result) -> NDArray[np.float64]:
    judged = run.verdicts(result.key).first(result.accuracy.n)
    return 1.0 - np.array(judged.robust, dtype=np.float64)


def _alike(run: Run, results: Sequence[Result]) -> None:
    if len({(result.weights, result.accuracy.n) for result in results}) > 1:
        raise ValueError(
            f"the corruption results of {run.path} are of other weights or numbers of "
            "samples: evaluate them again together"
        )
