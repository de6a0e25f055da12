"""Evaluates a run: its weights, its data, the attacks of its recipe; resumable."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from advnorm import ranks
from advnorm.data import DataSet, expand_name
from advnorm.evaluation import Cell, cells
from advnorm.evaluation.certificates import certified_first, refuse_meeting
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe
from advnorm.records import Result, Run
from advnorm.runs.condition import judged
from advnorm.runs.load import LoadedRun, check_fit, load_run
from advnorm.training.build import check_recipe as check_names
from advnorm.training.build import choose_device, evaluation_threats
from advnorm.training.components import load_data


def assess(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Run the recipe's evaluation on the run's weights; finished cells are not run again.

    Under torchrun the ranks share the samples; verdicts are those of one process.

    ``recipe`` is the run's own, with its ``evaluation`` changed at will.
    """
    check_names(recipe)
    where = choose_device(device)
    with ranks.process_group(where), ExitStack() as held:
        progress = progress if progress and ranks.is_first() else Quiet()
        ranks.run_on_first(lambda: held.enter_context(run.lock()))
        subject = load_run(run, recipe, root, where, progress)
        columns = _columns(recipe, subject.data.shape)
        results = [
            judged(run, tested, cell, progress)
            for tested in _on_each_set(subject, root)
            for cell in columns
        ]
        refuse_meeting((result, run.verdicts(result.key)) for result in run.results())
        return results


def _columns(recipe: Recipe, shape: Sequence[int]) -> list[Cell]:
    spec = recipe.evaluation
    if not spec.conditions:
        raise ValueError(
            "evaluation.conditions is empty: name at least one, such as pgd-40"
        )
    columns = cells(
        spec.conditions,
        evaluation_threats(recipe),
        recipe.threat.bounds,
        step_ratio=spec.step_ratio,
        shape=shape,
    )
    return certified_first(columns, spec.certificate)


def _on_each_set(subject: LoadedRun, root: Path | None) -> Iterator[LoadedRun]:
    """Yield the subject on its own data, or on each set that the evaluation names."""
    recipe = subject.recipe
    if recipe.evaluation.data is None:
        yield subject
        return
    for name in expand_name(recipe.evaluation.data):
        data = _other(recipe, name, subject.data, root)
        check_fit(recipe, subject.model, data, subject.device)
        yield subject._replace(data=data)


def _other(recipe: Recipe, name: str, data: DataSet, root: Path | None) -> DataSet:
    """Read a data set that the evaluation names instead of the run's own."""
    spec = recipe.data.model_copy(update={"name": name})
    other = load_data(recipe.model_copy(update={"data": spec}), root=root)
    if other.shape != data.shape or len(other.classes) != len(data.classes):
        raise ValueError(
            f"{other.name} has images of shape {other.shape} and {len(other.classes)} "
            f"classes; the model was made for {data.shape} and {len(data.classes)}"
        )
    return other
