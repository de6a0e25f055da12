"""When checkpoints are written."""

from time import monotonic

import torch

from advnorm import ranks
from advnorm.records import Run
from advnorm.train import checkpoints
from advnorm.train.build import Job
from advnorm.train.guards import NotFiniteError
from advnorm.train.state import State, tensors


class Saver:
    """Writes the state of a job into its run folder; of several ranks, the first does."""

    def __init__(self, job: Job, run: Run) -> None:
        self._job, self._run = job, run
        self._last = monotonic()

    def save(self, state: State) -> None:
        """Write weights, optimizer and state, and how many epochs are on record."""
        ranks.lead(lambda: self._write(state))
        self._last = monotonic()

    def _write(self, state: State) -> None:
        digest = self._job.data.digest()
        facts = {"state": state.facts(), "epochs": state.epoch, "data": digest}
        named = tensors(self._job.model, self._job.optimizer)
        for name, value in named.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise NotFiniteError(f"{name} holds NaN or infinity and was not saved,")
        checkpoints.save(self._run.checkpoints, "state", state.step, named, facts)

    def save_if_due(self, state: State) -> None:
        """Write them if the last time is long ago."""
        due = monotonic() - self._last >= self._job.recipe.checkpoint_seconds
        if ranks.most(int(due)):
            self.save(state)

    def save_best(self, step: int) -> None:
        """Write the weights that validation prefers."""
        weights = {f"model/{k}": v for k, v in self._job.model.state_dict().items()}
        ranks.lead(
            lambda: checkpoints.save(
                self._run.checkpoints, "best", step, weights, {"step": step}
            )
        )
