"""Turns a recipe into objects; nothing below ever sees the recipe."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from advnorm import data as sets
from advnorm import ranks
from advnorm.recipe import Recipe
from advnorm.threat import Threat
from advnorm.training import components
from advnorm.training.recipe_checks import check_recipe

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Experiment:
    """A recipe and the objects made of it."""

    recipe: Recipe
    data: sets.DataSet
    model: nn.Module
    optimizer: torch.optim.Optimizer
    threat: Threat
    device: torch.device

    @property
    def batch_size(self) -> int:
        """Samples of a step, over all ranks."""
        return min(self.recipe.batch_size, len(self.data.train))

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch; the samples left over are drawn in another epoch."""
        return max(1, len(self.data.train) // self.recipe.batch_size)


def build_experiment(
    recipe: Recipe, *, root: Path | None, device: str, begun: bool = False
) -> Experiment:
    """Build everything that a recipe names; the initial weights depend on its seed alone.

    A run that has ``begun`` restores its own weights: ``init_from`` is not read again.
    """
    check_recipe(recipe)
    where = choose_device(device)
    data = components.load_data(recipe, root=root)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = components.build_model(recipe, data).to(where)
    if recipe.init_from is not None and not begun:
        components.load_initial_weights(recipe.init_from, model)
    model.to(torch.float64 if recipe.precision == "float64" else torch.float32)
    if recipe.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Experiment(
        recipe=recipe,
        data=data,
        model=model,
        optimizer=components.build_optimizer(recipe, model),
        threat=recipe.threat.build(),
        device=where,
    )


def choose_device(name: str) -> torch.device:
    """Return the named device; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(ranks.local_device(name))
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"no device {name!r}: write cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here: leave out --device, or write cpu")
    return device
