"""Which numbers are of runs whose training was not finished."""

import re
from collections.abc import Sequence

from advnorm.records import Diagnosis, Epoch, Result, TrainingProgress

UNRECORDED = "the record does not say how far training was"
"""Said of a result that is older than the mark, where the run does not tell either."""


def infer_progress(
    weights: str, epochs: Sequence[Epoch], planned: int
) -> TrainingProgress | None:
    """Tell from ``metrics.jsonl`` how far training was, for a record that does not say.

    ``weights`` names the checkpoint: ``best-00000400 sha256:...``. Its step says how many
    epochs it has seen; best weights that no later epoch surpassed are those of the run as
    it is. ``None`` if nothing can be said.
    """
    named = re.match(r"(best|state)-(\d{1,15})\b", weights)
    if not named or not epochs:
        return None
    kind, step = named[1], int(named[2])
    seen = [epoch for epoch in epochs if epoch.step <= step]
    surpassed = any(epoch.best for epoch in epochs[len(seen) :])
    known = epochs if kind == "best" and not surpassed else seen
    if not known:
        return TrainingProgress(epochs=0, steps=step, planned=planned)
    steps = max(0, step - known[-1].step)
    return TrainingProgress(epochs=known[-1].epoch, steps=steps, planned=planned)


def unfinished(results: Sequence[Result]) -> tuple[str, ...]:
    """Say how far the runs of results were, each that was not finished, by its seed."""
    several = len(results) > 1
    return tuple(
        f"seed {r.seed}: {r.training}" if several else str(r.training)
        for r in results
        if r.training and not r.training.finished
    )


def unfinished_diagnoses(diagnoses: Sequence[Diagnosis]) -> str:
    """Say how far the runs of diagnoses were, where they were not finished."""
    told = (str(d.training) for d in diagnoses if d.training and not d.training.finished)
    return unfinished_text(tuple(dict.fromkeys(told)))


def unfinished_text(texts: Sequence[str]) -> str:
    """Write a mark for a label.

    >>> unfinished_text(("13 of 400 epochs",)), unfinished_text(())
    ('unfinished: 13 of 400 epochs', '')
    """
    return f"unfinished: {'; '.join(texts)}" if texts else ""
