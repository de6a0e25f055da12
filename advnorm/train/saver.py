"""When checkpoints are written."""

from time import monotonic

import torch

from advnorm.records import Run
from advnorm.train import checkpoints
from advnorm.train.build import Job
from advnorm.train.guards import NotFiniteError
from advnorm.train.state import State, tensors


class Saver:
    """Writes the state of a job into its run folder."""

    def __init__(self, job: Job, run: Run) -> None:
        self._job, self._run = job, run
        self._last = monotonic()

    def save(self, state: State) -> None:
        """Write weights, optimizer and state, and how many epochs are on record."""
        digest = self._job.data.digest()
        facts = {"state": state.facts(), "epochs": state.epoch, "data": digest}
        named = tensors(self._job.model, self._job.optimizer)
        for name, value in named.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise NotFiniteError(f"{name} holds NaN or infinity and was not saved,")
        checkpoints.save(self._run.checkpoints, "state", state.step, named, facts)
        self._last = monotonic()

    def save_if_due(self, state: State) -> None:
        """Write them if the last time is long ago."""
        if monotonic() - self._last >= self._job.recipe.checkpoint_seconds:
            self.save(state)

    def save_best(self, step: int) -> None:
        """Write the weights that validation prefers."""
        weights = {f"model/{k}": v for k, v in self._job.model.state_dict().items()}
        checkpoints.save(self._run.checkpoints, "best", step, weights, {"step": step})
