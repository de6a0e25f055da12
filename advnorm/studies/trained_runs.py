"""The trained run of a recipe, found again by its folder's name.

A run's folder is named by the hash of what decides its weights: its recipe without the
sections that only evaluate it, and its data. All who need the same run share it, and a
finished one is not trained again. Settings at their defaults are not part of the hash, so
that a new setting does not orphan old runs.

A longer run continues from a shorter one of the same recipe. Randomness is a function of
seed, epoch and sample, and an epoch does not depend on how many follow: the first 10 of 40
epochs are a run of 10. So a curve over the epochs costs its longest run, and each of its
points is a run of its own.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from math import inf
from pathlib import Path
from shutil import copy2, copytree
from time import perf_counter

from advnorm.files import locked, read_text, write_atomically
from advnorm.progress import Progress
from advnorm.recipe import (
    Recipe,
    RecipeError,
    differences,
    from_yaml,
    original_keys,
    to_yaml,
)
from advnorm.records import Run, RunLostError
from advnorm.training import load_data, train, with_digest
from advnorm.training.completion import is_finished

_NOT_TRAINING = ("name", "evaluation", "perturbation")
"""Settings that do not change the weights."""
_FILES = ("environment.json", "metrics.jsonl", "monitor.jsonl")


def training_settings(recipe: Recipe) -> str:
    """Return the settings of a recipe that decide the weights."""
    values = original_keys(recipe.model_dump(mode="json", exclude_defaults=True))
    settings = {key: value for key, value in values.items() if key not in _NOT_TRAINING}
    return json.dumps(settings, sort_keys=True)


def run_name(recipe: Recipe, digest: str) -> str:
    """Return the name of a run's folder, from its recipe and its data's digest."""
    return sha256((training_settings(recipe) + digest).encode()).hexdigest()[:16]


def train_once(
    recipe: Recipe,
    folder: Path,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Run:
    """Return the run of a recipe below ``folder``, trained to its end."""
    recipe = with_digest(recipe)
    digest = load_data(recipe, root=root).digest()
    path = folder / run_name(recipe, digest)
    with lock_run(path):
        if not (path / "recipe.yaml").is_file():
            start_from_shorter(
                recipe, path, lambda shorter: folder / run_name(shorter, digest)
            )
        resume = (path / "recipe.yaml").is_file()
        if resume:
            run = Run.open(path)
            before = read_recipe(run)
            _check_same_training(path, before, recipe)
            if len(run.epochs()) >= before.epochs and is_finished(run, before.epochs):
                return run
            recipe = before  # its name and its evaluation may be others
        with timed(path):
            return train(
                recipe, path, root=root, device=device, resume=resume, progress=progress
            )


def start_from_shorter(
    recipe: Recipe, path: Path, folder_of: Callable[[Recipe], Path]
) -> None:
    """Start the run in ``path`` from the longest finished shorter one, if there is any.

    ``folder_of`` returns the folder of a recipe's run. With ``norm.freeze_epochs`` the last
    epochs differ, and after an epoch that only the shorter run validates, the best weights
    may differ: then nothing is copied.
    """
    if recipe.norm.freeze_epochs or recipe.init_from is not None:
        return
    for epochs in range(recipe.epochs - 1, 0, -1):
        if epochs % recipe.validation.every:
            continue
        shorter = folder_of(recipe.model_copy(update={"epochs": epochs}))
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


def read_recipe(run: Run) -> Recipe:
    """Return the recipe that a run was trained with."""
    try:
        return from_yaml(run.recipe_text())
    except RecipeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{run.path / 'recipe.yaml'} is damaged ({reason}): remove the whole folder"
        ) from error


def _check_same_training(path: Path, before: Recipe, recipe: Recipe) -> None:
    """Refuse a run that was trained when a default had another value."""
    ignored = {key: getattr(recipe, key) for key in _NOT_TRAINING}
    changed = differences(before.model_copy(update=ignored), recipe)
    if changed:
        raise ValueError(
            f"{path} was trained with other settings ({'; '.join(changed)}): remove it, or "
            "choose another folder"
        )


def lock_run(path: Path) -> AbstractContextManager[object]:
    """Wait until no other process uses a run."""
    return wait_for_lock(path.parent.parent, path.name)


def wait_for_lock(out: Path, name: str) -> AbstractContextManager[object]:
    """Wait for a lock, by name, of an output folder, and hold it during a block."""
    locks = out / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return locked(locks / name, wait=True)


@contextmanager
def timed(path: Path) -> Iterator[None]:
    """Add the time of a block to what a run has cost, also if it is interrupted."""
    start, lost = perf_counter(), False
    try:
        yield
    except RunLostError:
        lost = True
        raise
    finally:
        if not lost and (path / "recipe.yaml").is_file():
            spent = seconds_of(path) + perf_counter() - start
            write_atomically(path / "seconds.json", json.dumps(spent).encode())


def seconds_of(path: Path) -> float:
    """Return what a run has cost so far; 0 where the file of it is damaged."""
    try:
        seconds = float(read_text(path / "seconds.json", 100))
    except (OSError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < inf else 0.0
