"""What ``--set`` changes in the commands that work on run folders."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advnorm.cli.output import say

if TYPE_CHECKING:
    from advnorm.recipe import Recipe
    from advnorm.records import Result, Run

WEIGHTS = ("weights", "branch")
"""Evaluation settings that every command on a run knows."""
SAMPLES = ("samples", "batch_size", *WEIGHTS)
THREAT = ("threat.eps", "threat.norm")
RECIPE_THREAT = ("evaluation.threat={}",)
"""The recipe's own threat, where ``--set`` names no other."""


def evaluation_settings(
    changes: Sequence[str] | None, allowed: Sequence[str] | None = None
) -> list[str]:
    """Return the changes with full keys: ``eps=0.1`` is ``evaluation.threat.eps=0.1``.

    A command that uses only the ``allowed`` settings refuses the others.
    """
    from advnorm.recipe import assignment, full_key
    from advnorm.registry import unknown

    full = []
    for change in changes or []:
        path, _ = assignment(change)
        key = full_key(".".join(path), "evaluation")
        name = key.removeprefix("evaluation.")
        if allowed is not None and name not in allowed:
            raise unknown("evaluation setting of this command called", name, list(allowed))
        full.append(f"{key}={change.partition('=')[2]}")
    return full


def changed_recipe(run: "Run", changes: Sequence[str]) -> "Recipe":
    """Return a run's recipe with some settings changed."""
    from advnorm.recipe import override, read

    return override(read(run.path / "recipe.yaml"), list(changes))


def for_each_run(
    runs: Sequence[Path],
    changes: Sequence[str],
    function: "Callable[..., list[Result]]",
    *,
    data: Path | None,
    device: str,
) -> "list[Run]":
    """Call a function of ``advnorm.runs`` on every run, and print all results."""
    from advnorm.progress import show_progress
    from advnorm.records import Run
    from advnorm.report import comparison_text

    opened = [Run.open(path) for path in runs]
    with show_progress() as progress:
        for run in opened:
            recipe = changed_recipe(run, changes)
            progress.line(f"{run.path}:")
            function(run, recipe, root=data, device=device, progress=progress)
    say(comparison_text(opened))
    return opened
