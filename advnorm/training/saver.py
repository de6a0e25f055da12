"""When checkpoints are written."""

from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from advnorm import ranks
from advnorm.records import Run, RunLostError
from advnorm.training import checkpoints
from advnorm.training.build import Experiment
from advnorm.training.guards import NotFiniteError
from advnorm.training.state import State, tensors


class Saver:
    """Writes checkpoints into the run folder, on rank 0 only."""

    def __init__(self, experiment: Experiment, run: Run) -> None:
        self._experiment, self._run = experiment, run
        self._last = monotonic()
        self._written: dict[str, Path] = {}
        """The newest checkpoint of each kind."""
        for kind in ("state", "best"):
            for manifest in checkpoints.manifests(run.checkpoints, kind)[-1:]:
                if manifest.with_suffix(".safetensors").exists():
                    self._written[kind] = manifest

    def save(self, state: State) -> None:
        """Write weights, optimizer and state, and how many epochs are on record."""
        ranks.run_on_first(lambda: self._write(state))
        self._last = monotonic()

    def check(self) -> None:
        """Raise :class:`RunLostError` if a checkpoint was removed."""
        self._run.check()
        for manifest in self._written.values():
            for path in (manifest, manifest.with_suffix(".safetensors")):
                if not path.exists():
                    raise RunLostError(path, "was removed")

    def _write(self, state: State) -> None:
        digest = self._experiment.data.digest()
        facts = {"state": state.facts(), "epochs": state.epoch, "data": digest}
        named = tensors(self._experiment.model, self._experiment.optimizer)
        for name, value in named.items():
            if value.is_floating_point() and not torch.isfinite(value).all():
                raise NotFiniteError(f"{name} holds NaN or infinity and was not saved,")
        self._put("state", state.step, named, facts)
        self.check()

    def _put(
        self, kind: str, step: int, named: dict[str, Tensor], facts: dict[str, Any]
    ) -> None:
        folder = self._run.checkpoints
        try:
            with self._run.writing():
                path = checkpoints.save(folder, kind, step, named, facts)
        except OSError:
            if not folder.is_dir():
                raise RunLostError(folder, "was removed") from None
            raise
        self._written[kind] = path.with_suffix(".json")

    def save_if_due(self, state: State) -> None:
        """Write them if the last checkpoint is older than ``checkpoint_seconds``."""
        due = monotonic() - self._last >= self._experiment.recipe.checkpoint_seconds
        if ranks.all_reduce_max(int(due)):
            self.save(state)

    def save_best(self, step: int) -> None:
        """Write the weights with the best validation score."""
        weights = {f"model/{k}": v for k, v in self._experiment.model.state_dict().items()}
        ranks.run_on_first(lambda: self._put("best", step, weights, {"step": step}))
