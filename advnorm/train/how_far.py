"""How far the training of a run is, as its checkpoints say."""

from typing import Any

from advnorm.records import Run, Training
from advnorm.train import checkpoints


def how_far(run: Run, planned: int) -> Training | None:
    """Return how far a run is, of so many planned epochs.

    The newest state decides: a process that was killed may have written the line of an
    epoch, but not yet its weights. Where somebody has removed all states, the epochs on
    record count. ``None`` if there is neither.
    """
    for manifest in reversed(checkpoints.manifests(run.checkpoints, "state")):
        facts = checkpoints.facts_of(manifest)
        if facts is not None:
            return reached(facts, planned)
    epochs = run.epochs()
    return Training(epochs=epochs[-1].epoch, planned=planned) if epochs else None


def reached(facts: dict[str, Any], planned: int) -> Training:
    """Return how far the run of a state is."""
    state = facts["state"]
    return Training(epochs=state["epoch"], steps=state["seen"], planned=planned)


def finished(run: Run, planned: int) -> bool:
    """Tell whether a run has all of its planned epochs."""
    training = how_far(run, planned)
    return training is not None and training.finished
