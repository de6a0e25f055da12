"""How much of its training a run has completed, from its checkpoints."""

from typing import Any

from advnorm.records import Run, TrainingProgress
from advnorm.training import checkpoints


def read_completion(run: Run, planned: int) -> TrainingProgress | None:
    """Return how much of the planned epochs a run has completed.

    The newest state decides: a process that was killed may have written the record of an
    epoch, but not yet its weights. Without any readable state, the recorded epochs count.
    ``None`` if there is neither.
    """
    for manifest in reversed(checkpoints.manifests(run.checkpoints, "state")):
        training = completion_from(checkpoints.facts_of(manifest), planned)
        if training is not None:
            return training
    epochs = run.epochs()
    return TrainingProgress.read(planned, epochs[-1].epoch) if epochs else None


def completion_from(facts: dict[str, Any] | None, planned: int) -> TrainingProgress | None:
    """Return the completion from a checkpoint's facts; ``None`` if they do not say."""
    state = (facts or {}).get("state")
    if not isinstance(state, dict):
        return None
    return TrainingProgress.read(planned, state.get("epoch"), state.get("seen"))


def is_finished(run: Run, planned: int) -> bool:
    """Return whether a run has completed all planned epochs."""
    training = read_completion(run, planned)
    return training is not None and training.finished
