"""Numbers of runs whose folders are gone, from an earlier record of the same study."""

from collections.abc import Mapping
from pathlib import Path

from advnorm.recipe import Recipe
from advnorm.records import Study, StudyRow
from advnorm.studies.run_numbers import RunNumbers
from advnorm.studies.trained_runs import run_name
from advnorm.training import load_data, with_digest


def earlier_numbers(
    study: Study, evaluation: str, recipes: Mapping[str, Recipe], root: Path | None
) -> dict[str, dict[int, RunNumbers]]:
    """Return the numbers by row and seed.

    A number is taken only if today's recipe and data give the run the same name, and if it
    was tested by today's ``evaluation``.
    """
    if study.evaluation != evaluation:
        return {}
    return {
        label: _runs(study, study.rows[label], recipe, root)
        for label, recipe in recipes.items()
        if label in study.rows
    }


def _runs(
    study: Study, row: StudyRow, recipe: Recipe, root: Path | None
) -> dict[int, RunNumbers]:
    count = sum(len(each.runs) for each in study.rows.values())
    recipe = with_digest(recipe)
    named = {
        seed: run_name(seeded, load_data(seeded, root=root).digest())
        for seed, seeded in ((seed, recipe.replace(seed=seed)) for seed in row.seeds)
    }
    return {
        seed: RunNumbers(
            run=run,
            numbers={
                column: (number.values[place], number.n)
                for column, number in row.numbers.items()
                if len(number.values) == len(row.seeds)
            },
            flags=row.flags,
            branch=row.branch,
            seconds=study.seconds / count,
            machine=study.machine,
        )
        for place, (seed, run) in enumerate(zip(row.seeds, row.runs, strict=True))
        if run == named[seed]
    }
