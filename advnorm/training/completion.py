"""How far the training of a run is, as its checkpoints say."""

from typing import Any

from advnorm.records import Run, TrainingProgress
from advnorm.training import checkpoints


def read_completion(run: Run, planned: int) -> TrainingProgress | None:
    """Return how far a run is, of so many planned epochs.

    The newest state decides: a process that was killed may have written the line of an
    epoch, but not yet its weights. Where somebody has removed all states, or none makes
    sense, the epochs on record count. ``None`` if there is neither.
    """
    for manifest in reversed(checkpoints.manifests(run.checkpoints, "state")):
        training = completion_from(checkpoints.facts_of(manifest), planned)
        if training is not None:
            return training
    epochs = run.epochs()
    return TrainingProgress.read(planned, epochs[-1].epoch) if epochs else None


def completion_from(facts: dict[str, Any] | None, planned: int) -> TrainingProgress | None:
    """Return how far the run of a state is; ``None`` if its facts do not say."""
    state = (facts or {}).get("state")
    if not isinstance(state, dict):
        return None
    return TrainingProgress.read(planned, state.get("epoch"), state.get("seen"))


def is_finished(run: Run, planned: int) -> bool:
    """Tell whether a run has all of its planned epochs."""
    training = read_completion(run, planned)
    return training is not None and training.finished
