"""Mark the numbers of runs whose training was not finished."""

import re
from collections.abc import Sequence

from advnorm.records import Diagnosis, Epoch, Result, TrainingProgress

UNRECORDED = "it was not recorded how far training was"
"""The note of an old result whose progress cannot be inferred from its run either."""


def infer_progress(
    weights: str, epochs: Sequence[Epoch], planned: int
) -> TrainingProgress | None:
    """Infer from ``metrics.jsonl`` how far training was, for an old record without it.

    ``weights`` names the checkpoint: ``best-00000400 sha256:...``. Its step says how many
    epochs came before it; best weights that no later epoch surpassed are those of the run
    as it is now. ``None`` if nothing can be inferred.
    """
    checkpoint = re.match(r"(best|state)-(\d{1,15})\b", weights)
    if not checkpoint or not epochs:
        return None
    kind, step = checkpoint[1], int(checkpoint[2])
    before = [epoch for epoch in epochs if epoch.step <= step]
    surpassed = any(epoch.best for epoch in epochs[len(before) :])
    completed = epochs if kind == "best" and not surpassed else before
    if not completed:
        return TrainingProgress(epochs=0, steps=step, planned=planned)
    steps = max(0, step - completed[-1].step)
    return TrainingProgress(epochs=completed[-1].epoch, steps=steps, planned=planned)


def unfinished_runs(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the progress of each unfinished run of some results, with its seed."""
    several = len(results) > 1
    return tuple(
        f"seed {r.seed}: {r.training}" if several else str(r.training)
        for r in results
        if r.training and not r.training.finished
    )


def unfinished_diagnoses(diagnoses: Sequence[Diagnosis]) -> str:
    """Write the progress of the unfinished runs of some diagnoses."""
    texts = (str(d.training) for d in diagnoses if d.training and not d.training.finished)
    return unfinished_text(tuple(dict.fromkeys(texts)))


def unfinished_text(texts: Sequence[str]) -> str:
    """Write the mark of unfinished runs; empty if all are finished.

    >>> unfinished_text(("13 of 400 epochs",)), unfinished_text(())
    ('unfinished: 13 of 400 epochs', '')
    """
    return f"unfinished: {'; '.join(texts)}" if texts else ""
