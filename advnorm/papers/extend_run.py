"""A longer run goes on where a shorter one of the same recipe ended.

A run's randomness is a function of seed, epoch and sample, and what happens in an epoch
does not depend on how many follow: the first 10 of 40 epochs are a run of 10. So a curve
over the epochs costs its longest run, and each of its points is a run of its own.
"""

from collections.abc import Callable
from pathlib import Path
from shutil import copy2, copytree

from advnorm.files import write_atomically
from advnorm.recipe import Recipe, to_yaml
from advnorm.records import Run
from advnorm.training.completion import is_finished

_FILES = ("environment.json", "metrics.jsonl", "monitor.jsonl")


def prolong(recipe: Recipe, path: Path, where: Callable[[Recipe], Path]) -> None:
    """Begin the run in ``path`` with the longest finished shorter one, if there is any.

    ``where`` names the folder of a recipe's run. With ``norm.freeze_epochs`` the last
    epochs differ, and after an epoch that only the shorter run validates, the best weights
    may: then nothing is begun.
    """
    if recipe.norm.freeze_epochs or recipe.init_from is not None:
        return
    for epochs in range(recipe.epochs - 1, 0, -1):
        if epochs % recipe.validation.every:
            continue
        shorter = where(recipe.model_copy(update={"epochs": epochs}))
        if (shorter / "recipe.yaml").is_file() and is_finished(Run.open(shorter), epochs):
            _copy(shorter, path, recipe)
            return


def _copy(shorter: Path, path: Path, recipe: Recipe) -> None:
    """Copy weights and metrics; the recipe, which makes it a run, comes last."""
    checkpoints = path / "checkpoints"
    copytree(shorter / "checkpoints", checkpoints, symlinks=True, dirs_exist_ok=True)
    for name in ("results", "verdicts", "examples"):
        (path / name).mkdir(exist_ok=True)
    for name in _FILES:
        if (shorter / name).exists():
            copy2(shorter / name, path / name, follow_symlinks=False)
    write_atomically(path / "recipe.yaml", to_yaml(recipe).encode())
