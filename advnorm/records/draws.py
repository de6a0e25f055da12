"""Accuracies of a randomized model, over the draws of its randomness."""

from collections.abc import Sequence

from advnorm.records.base import Accuracy, Count, Record


class DrawsSummary(Record):
    """What the draws of all samples say together."""

    draws: Count
    """Passes for each sample."""
    mean: float
    """The mean over samples of the share of draws that are right: one pass's accuracy."""
    low: float
    """The lower end of its 95% interval, over samples and draws."""
    high: float
    """The upper end."""
    lowest: Accuracy
    """In the draw with the fewest right answers."""
    highest: Accuracy
    """In the draw with the most."""
    always: Count
    """Samples that are right in every draw."""
    never: Count
    """Samples that are right in none."""

    def __str__(self) -> str:
        return (
            f"right in {self.mean:.1%} [{self.low:.1%}, {self.high:.1%}] of {self.draws} "
            f"draws (one draw: {self.lowest.fraction:.1%} to {self.highest.fraction:.1%}), "
            f"always {self.always}, never {self.never} of {self.lowest.n}"
        )


def summarize_draws(right: Sequence[Sequence[bool]]) -> DrawsSummary:
    """Count draws, a row per sample.

    The interval is Wilson's for the mean with one observation per sample. The variance of
    a share of draws is at most that of one draw, so it is never too narrow.

    >>> summary = summarize_draws([(True, True), (True, False), (False, False)])
    >>> summary.mean, summary.always, summary.never, summary.lowest.correct
    (0.5, 1, 1, 1)
    """
    n, draws = len(right), len(right[0])
    mean = sum(map(sum, right)) / (n * draws)
    counts = [Accuracy(correct=sum(column), n=n) for column in zip(*right, strict=True)]
    below, above = (Accuracy(correct=c, n=n) for c in _neighbours(mean * n))
    low = min(below.interval[0], above.interval[0])
    high = max(below.interval[1], above.interval[1])
    return DrawsSummary(
        draws=draws,
        mean=mean,
        low=low,
        high=high,
        lowest=min(counts, key=lambda accuracy: accuracy.correct),
        highest=max(counts, key=lambda accuracy: accuracy.correct),
        always=sum(map(all, right)),
        never=sum(not any(row) for row in right),
    )


def draws_note(summary: DrawsSummary | None) -> str:
    """Return the note beside an accuracy of a randomized model."""
    return f"randomized: {summary}"


def _neighbours(count: float) -> tuple[int, int]:
    """Return the whole numbers around a count."""
    return int(count), -int(-count // 1)
