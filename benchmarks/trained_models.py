"""Models and test samples of run folders, for benchmarks."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.recipe import from_yaml
from advnorm.records import Run
from advnorm.runs import load as run_loader
from advnorm.threat import Threat
from advnorm.training.components import load_data


class TrainedModel(NamedTuple):
    """A trained model, its first test samples, and the threat it was trained against."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor
    threat: Threat
    weights: str


def load_trained(path: Path, root: Path | None, count: int) -> TrainedModel:
    """Read a run folder: its best weights, in evaluation."""
    run = Run.open(path)
    recipe = from_yaml(run.recipe_text())
    data = load_data(recipe, root=root)
    model, weights, _ = run_loader.load_trained(
        run, recipe, data, weights="best", warnings=[]
    )
    rows = torch.arange(min(count, len(data.test)))
    batch = next(data.test.batches(rows, batch_size=len(rows), device=torch.device("cpu")))
    return TrainedModel(
        path.name,
        model.eval(),
        batch.images.float().clamp(*recipe.threat.bounds),
        batch.labels,
        recipe.threat.build(),
        weights,
    )
