"""A study: which of several settings to choose, for any recipe, model and data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advnorm import models
from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.records import Study
from advnorm.studies.combinations import Over, combine, texts_of
from advnorm.studies.cost import Cost, evaluation_passes
from advnorm.studies.engine import Engine
from advnorm.studies.grid import Workers, Workspace
from advnorm.training.user_inputs import passed_in_python


def study(
    recipe: Recipe,
    over: Mapping[str, Sequence[object]],
    *,
    out: Path | str = "study",
    seeds: int = 3,
    on: Workers = 1,
    budget: float | None = None,
    model: models.Source | str | None = None,
    data: Any = None,
    progress: Progress | None = None,
) -> Study:
    """Train and evaluate all combinations of settings; say which to choose.

    Runs go to ``out``, where a study that was stopped goes on and other studies find the
    runs that they share. ``out/study.json`` is written after each run.

    Args:
        recipe: What all combinations have in common.
        over: Values by key, such as ``{"norm.name": ["batch", "group"]}``.
        out: The folder of the study.
        seeds: Runs of each combination; at least 3 for a decision.
        on: The number of processes, or ``"ray"``.
        budget: Hours, approximately. Combinations that are clearly behind after a quarter
            or a half of the epochs are stopped, then seeds are added while there is time.
        model: A network of your own, as in :func:`advnorm.train`.
        data: Data of your own, as in :func:`advnorm.train`.
        progress: Where to report; default nowhere.

    Returns:
        The study: a row a combination, comparisons, and an answer of two sentences.

    >>> import tempfile
    >>> from advnorm.recipe import DataSpec, EvaluationSpec
    >>> tiny = Recipe(epochs=1, batch_size=32, data=DataSpec(train=64, test=16))
    >>> tiny = tiny.replace(evaluation=EvaluationSpec(conditions=("clean", "pgd-2")))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = study(tiny, {"norm.name": ["batch", "none"]}, out=folder, seeds=1)
    >>> list(result.rows)
    ['batch', 'none']
    """
    if on != 1 and (data is not None or not (model is None or isinstance(model, str))):
        raise ValueError(
            "a model or data passed in Python stay in this process: set on=1, or name the "
            "model as 'FILE.py:NAME' and keep the data in a file (data.name=npz:PATH)"
        )
    with passed_in_python(recipe, model, data) as own:
        return run_study(
            own,
            texts_of(over),
            Workspace(Path(out), on=on),
            seeds=seeds,
            budget=budget,
            progress=progress,
        )


def run_study(
    recipe: Recipe,
    over: Over,
    workspace: Workspace,
    *,
    seeds: int = 3,
    budget: float | None = None,
    earlier: Study | None = None,
    progress: Progress | None = None,
) -> Study:
    """Do the runs of a study in a workspace; see :func:`study`.

    Runs of an ``earlier`` record of the same study are not made again.
    """
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one")
    if budget is not None and not budget > 0:
        raise ValueError(f"--budget {budget:g}: hours, more than 0")
    if workspace.out.is_file():
        raise ValueError(f"--out {workspace.out} is a file: choose another --out")
    if (workspace.out / "recipe.yaml").exists():
        raise ValueError(f"--out {workspace.out} is a run folder: choose another --out")
    combinations = combine(recipe, over)
    data = workspace.data and workspace.data.absolute()  # Ray's workers are elsewhere
    workspace = replace(workspace, out=workspace.out.absolute(), data=data)
    engine = Engine(recipe, over, seeds, workspace, combinations, progress)
    if earlier is not None:
        engine.take(earlier)
    return engine.run(budget)


def cost_text(recipe: Recipe, over: Over, seeds: int) -> str:
    """Say what a study costs at most, and what it leaves out."""
    combinations, operations = combine(recipe, over), 0.0
    for label, each in combinations.recipes.items():
        counts = combinations.plans[label]
        operations += counts.training + counts.forward * evaluation_passes(each)
    runs = seeds * len(combinations.recipes)
    cost = Cost(runs=runs, operations=seeds * operations)
    lines = [f"{len(combinations.recipes)} combinations, {seeds} seeds, at most {cost}"]
    lines += [f"left out: {label}: {why}" for label, why in combinations.skipped.items()]
    return "\n".join(lines)
