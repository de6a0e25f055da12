"""The headline of an evaluation: the worst case over everything that was run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from advnorm.records.base import Accuracy, ThreatRecord
from advnorm.records.results import Result, Verdicts
from advnorm.records.run import Run

ATTACKED = ("attack", "suite", "curve")
"""The kinds of conditions with an adversary that changes images."""


class Headline(NamedTuple):
    """The worst case in one ball: a sample is robust only if nothing broke it."""

    threat: ThreatRecord
    accuracy: Accuracy
    conditions: tuple[str, ...]
    """What was run in this ball, and in smaller ones of the same norm."""
    misclassified: int
    """Samples that are wrong without an attack."""
    broken: dict[str, int]
    """How many samples each attack broke, the first one that did; most first."""
    queries: int
    """Images that passed the model; 0 in records that did not count them."""
    gradients: int
    """Of these, passes with a gradient."""
    seconds: float
    where: str
    """The branch and the data, where they are not the only ones."""

    def __str__(self) -> str:
        threat = self.threat
        parts = [f"{name} {count}" for name, count in self.broken.items()]
        wrong = [f"{self.misclassified} misclassified"] if self.misclassified else []
        by = ", ".join([*wrong, *parts]) or "nothing"
        cost = f"{self.queries:,} queries, {self.gradients:,} gradients, "
        return (
            f"worst case at {threat.norm} {threat.eps:.4g}{self.where}: {self.accuracy}, "
            f"broken by {by} ({cost if self.queries else ''}{self.seconds:.1f} s)"
        )


def headlines(pairs: Iterable[tuple[Result, Verdicts]]) -> list[Headline]:
    """Return the worst case in each ball that an attack searched, in their order.

    Balls of one norm are nested: what broke a sample in a smaller one counts too. Results
    of other weights, data or branches are not put together.
    """
    attacked = [(r, v) for r, v in pairs if r.kind in ATTACKED and r.threat is not None]
    seen: dict[tuple[object, ...], Headline] = {}
    problems = {_problem(result) for result, _ in attacked}
    for result, _ in attacked:
        assert result.threat is not None
        key = (*_problem(result), result.threat.eps)
        if key not in seen:
            inside = [
                (r, v)
                for r, v in attacked
                if _problem(r) == _problem(result)
                and r.threat is not None
                and r.threat.eps <= result.threat.eps
            ]
            seen[key] = _headline(result, inside, several=len(problems) > 1)
    return list(seen.values())


def run_headlines(run: Run) -> list[Headline]:
    """Return the worst cases of a run's present results."""
    results = run.results()
    return headlines((r, run.verdicts(r.key).first(r.accuracy.n)) for r in results)


def _problem(result: Result) -> tuple[object, ...]:
    assert result.threat is not None
    threat = (result.threat.norm, result.threat.bounds)
    return (*threat, result.weights, result.data, result.branch, result.statistics)


def _headline(
    result: Result, pairs: Sequence[tuple[Result, Verdicts]], *, several: bool
) -> Headline:
    assert result.threat is not None
    shared = set.intersection(*(set(verdicts.samples) for _, verdicts in pairs))
    first: dict[int, str] = {}
    for _, verdicts in pairs:
        rows = zip(verdicts.samples, verdicts.robust, verdicts.by, strict=True)
        for sample, robust, by in rows:
            if sample in shared and not robust and first.get(sample) != "":
                first[sample] = first.get(sample) or by if by else ""
    counts = Counter(by for by in first.values() if by)
    names = [result.branch and f"{result.branch} branch", result.other and result.data]
    where = "".join(f", {name}" for name in names if name) if several else ""
    return Headline(
        threat=result.threat,
        accuracy=Accuracy(correct=len(shared) - len(first), n=len(shared)),
        conditions=tuple(dict.fromkeys(each.condition for each, _ in pairs)),
        misclassified=sum(by == "" for by in first.values()),
        broken=dict(counts.most_common()),
        queries=sum(each.queries for each, _ in pairs),
        gradients=sum(each.gradients for each, _ in pairs),
        seconds=sum(each.seconds for each, _ in pairs),
        where=where,
    )
