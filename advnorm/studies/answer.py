"""What to choose, and how sure that is: paired comparisons of a study's combinations.

Two combinations are compared by the seeds that both have, with the paired t-test. The
p-values of all pairs are corrected together (Holm, 1979), so that the chance of any false
difference in a study is at most 5%, also for the best row, which is picked by its numbers.
The intervals are over seeds, on the test samples at hand.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf
from statistics import mean

from advnorm.records import Accuracy, Study, StudyComparison, StudyNumber, StudyRow
from advnorm.significance import holm
from advnorm.t_test import FEWEST_SEEDS, Estimate, Sample, estimate


def number_of(
    values: Sequence[float], n: int | None, *, least: float = -inf
) -> StudyNumber:
    """Return a number with its 95% interval, of which nothing is below ``least``.

    >>> number = number_of([90.0, 92.0, 94.0], 1000)  # 2 / sqrt(3) * 4.303
    >>> round(number.low, 2), round(number.high, 2)
    (87.03, 96.97)
    """
    low: float | None = None
    high: float | None = None
    if len(values) > 1:
        half = _estimate(values, n).half_width
        low, high = mean(values) - half, mean(values) + half
    elif n:
        ends = Accuracy(correct=round(values[0] * n / 100), n=n).interval
        low, high = 100 * ends[0], 100 * ends[1]
    lowest, highest = (0.0, 100.0) if n else (least, inf)
    if low is not None and high is not None:
        low, high = max(lowest, low), min(highest, high)
    return StudyNumber(values=tuple(values), n=n, low=low, high=high)


def _estimate(values: Sequence[float], n: int | None) -> Estimate:
    return estimate(Sample(values, step=100 / n if n else 0.0))


def compare_rows(rows: Mapping[str, StudyRow], column: str) -> tuple[StudyComparison, ...]:
    """Compare all pairs of rows in a column, the better one first."""
    order = sorted(
        (label for label, row in rows.items() if column in row.numbers),
        key=lambda label: -rows[label].numbers[column].mean,
    )
    raw = []
    for first, second in combinations(order, 2):
        differences, n = _differences(rows[first], rows[second], column)
        if len(differences) >= FEWEST_SEEDS:
            raw.append((first, second, _estimate(differences, n)))
    adjusted = holm([difference.p_value() for *_, difference in raw])
    return tuple(
        StudyComparison(
            first=first,
            second=second,
            difference=difference.mean,
            low=difference.mean - difference.half_width,
            high=difference.mean + difference.half_width,
            p=p,
        )
        for (first, second, difference), p in zip(raw, adjusted, strict=True)
    )


def _differences(
    first: StudyRow, second: StudyRow, column: str
) -> tuple[list[float], int | None]:
    left = dict(zip(first.seeds, first.numbers[column].values, strict=True))
    right = dict(zip(second.seeds, second.numbers[column].values, strict=True))
    shared = [seed for seed in left if seed in right]
    return [left[seed] - right[seed] for seed in shared], first.numbers[column].n


def pareto_front(rows: Mapping[str, StudyRow], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the rows that no other row matches in all columns and beats in one."""
    points = {
        label: [row.numbers[column].mean for column in columns]
        for label, row in rows.items()
        if all(column in row.numbers for column in columns)
    }

    def dominated(label: str) -> bool:
        return any(
            other != points[label]
            and all(a >= b for a, b in zip(other, points[label], strict=True))
            for other in points.values()
        )

    return tuple(label for label in points if not dominated(label))


def with_answer(study: Study) -> Study:
    """Compare the rows of a study and say what to choose."""
    column = study.headline
    rows = {label: row for label, row in study.rows.items() if column in row.numbers}
    sound = {label: row for label, row in rows.items() if not row.flags}
    most = max((len(row.seeds) for row in sound.values()), default=0)
    finished = [label for label, row in sound.items() if len(row.seeds) == most]
    comparisons = compare_rows(rows, column)
    choice = max(finished, key=lambda label: rows[label].numbers[column].mean, default="")
    answer = (_what(study, choice, rows), _how_sure(choice, rows, comparisons, column))
    return study.model_copy(
        update={
            "comparisons": comparisons,
            "pareto": pareto_front(sound, ["clean", column]),
            "choice": choice,
            "answer": answer if choice else (_nothing(rows),),
        }
    )


def _nothing(rows: Mapping[str, StudyRow]) -> str:
    return (
        "Every accuracy is flagged: run 'advnorm audit' before you choose."
        if rows
        else "No run has finished."
    )


def _what(study: Study, choice: str, rows: Mapping[str, StudyRow]) -> str:
    if not choice:
        return ""
    row = rows[choice]
    robust, clean = row.numbers[study.headline], row.numbers.get("clean")
    settings = ", ".join(f"{key}={value}" for key, value in row.settings.items())
    seeds = f"{len(row.seeds)} seed{'s' * (len(row.seeds) > 1)}"
    beside = f" and {clean}% clean" if clean else ""
    return f"Choose {settings}: {robust}% robust ({study.threat}){beside}, over {seeds}."


def _how_sure(
    choice: str,
    rows: Mapping[str, StudyRow],
    comparisons: Sequence[StudyComparison],
    column: str,
) -> str:
    if not choice:
        return ""
    own = {
        pair.second if pair.first == choice else pair.first: pair
        for pair in comparisons
        if choice in (pair.first, pair.second)
    }
    untested = [label for label in rows if label != choice and label not in own]
    beaten = [k for k, pair in own.items() if pair.decided and pair.first == choice]
    above = [k for k, pair in own.items() if pair.decided and pair.second == choice]
    level = [label for label in own if label not in (*beaten, *above)]
    parts = []
    if beaten:
        parts.append(f"it is more robust than {_listed(beaten)}")
    if level:
        largest = max(max(abs(own[k].low), abs(own[k].high)) for k in level)
        parts.append(
            f"{_listed(level)} cannot be distinguished from it with these seeds "
            f"(differences of up to {largest:.1f} points are possible)"
        )
    if above:
        verbs = ("has", "is") if len(above) == 1 else ("have", "are")
        parts.append(
            f"{_listed(above)} {verbs[0]} higher accuracy, but {verbs[1]} flagged or "
            "unfinished"
        )
    if untested:
        verb = "shares" if len(untested) == 1 else "share"
        parts.append(
            f"{_listed(untested)} {verb} fewer than {FEWEST_SEEDS} seeds with it, so that "
            "nothing is decided"
        )
    text = "; ".join(parts) or "no other combination has finished, so nothing is decided"
    pairs = f"{len(comparisons)} pair{'s' * (len(comparisons) != 1)}"
    test = f" (paired t-tests, Holm over {pairs}, 5%)" if own else ""
    return f"{text[:1].upper()}{text[1:]}{test}."


def _listed(labels: Sequence[str]) -> str:
    quoted = [f"'{label}'" for label in labels]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
