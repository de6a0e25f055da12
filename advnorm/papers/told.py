"""What a record tells already: numbers of runs whose folders are no longer there.

A run is many megabytes and stays on the machine that made it; a record is a few kilobytes
and is kept. It holds what each job gave under each seed, so that a table may grow over days
and machines: a job is done again only if its recipe, its data or what it asks has changed.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from math import isfinite
from pathlib import Path

from advnorm.papers.artefact import Artefact, Job, seeded
from advnorm.papers.work import Done, decisive, name_of
from advnorm.recipe import Recipe
from advnorm.records import Panel, Reproduction, Scale, Told, read_reproduction
from advnorm.train import load

Key = tuple[str, int, str]
"""Row, seed, and what is asked."""


def asked(job: Job) -> str:
    """Return a hash of all that decides a job's numbers, but for the data's content."""
    recipes = {"": job.recipe, **job.targets}
    values = {key: value for key, value in asdict(job).items() if key not in _RECIPES}
    values |= {"judging": [_judging(recipe) for recipe in recipes.values()]}
    values |= {"trained": {name: decisive(recipe) for name, recipe in recipes.items()}}
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


_RECIPES = ("row", "recipe", "targets")


def _judging(recipe: Recipe) -> dict[str, object]:
    """Return what of a recipe judges a run, where it is not as always."""
    parts = {"evaluation", "perturbation"}
    return recipe.model_dump(mode="json", include=parts, exclude_defaults=True)


def key_of(job: Job) -> Key:
    """Return where a record tells of a job."""
    return job.row, job.recipe.seed, asked(job)


def told_by(path: Path) -> Reproduction | None:
    """Return the record of an earlier reproduction, if there is one."""
    return read_reproduction(path) if path.is_file() else None


def earlier(
    artefact: Artefact, scale: Scale, seeds: int, path: Path, root: Path | None
) -> dict[Key, Told]:
    """Return what a record tells, of these seeds and of more, and is still true."""
    record = told_by(path)
    if record is None:
        return {}
    most = max([seeds, *(one.seed + 1 for one in record.told)])
    jobs = [seeded(job, seed) for seed in range(most) for job in artefact.jobs(scale)]
    known = {(one.row, one.seed, one.asked): one for one in record.told}
    digest = _digests(root)
    pairs = [(known.get(key_of(job)), job.recipe) for job in jobs]
    return {
        (one.row, one.seed, one.asked): one
        for one, recipe in pairs
        if one is not None and _is_of(one, recipe, digest)
    }


def is_told(job: Job, told: Mapping[Key, Told], runs: Path) -> bool:
    """Tell whether a job's numbers are known, and its run is not there to ask again."""
    one = told.get(key_of(job))
    return one is not None and not (runs / one.run).is_dir()


def as_told(job: Job, done: Done) -> Told:
    """Return what a record holds of a job that is done."""
    row, seed, what = key_of(job)
    return Told(
        row=row,
        seed=seed,
        asked=what,
        run=done.run,
        numbers=done.numbers,
        seconds=done.seconds,
    )


def tellable(found: Iterable[Told]) -> tuple[Told, ...]:
    """Return what a record may hold: a number that is none would not be read again."""
    return tuple(one for one in found if all(map(isfinite, one.numbers.values())))


def panels_of(record: Reproduction, row: str) -> tuple[Panel, ...]:
    """Return the panels of a row, with the titles they had before the row's was added."""
    return tuple(
        panel.model_copy(update={"title": panel.title.removeprefix(f"{row}: ")})
        for panel in record.panels
        if panel.title.startswith(f"{row}: ")
    )


def _is_of(one: Told, recipe: Recipe, digest: Callable[[Recipe], str]) -> bool:
    """Tell whether a run was of the data that are here; where there are none, it was."""
    try:
        return name_of(recipe, digest(recipe)) == one.run
    except FileNotFoundError:
        return True


def _digests(root: Path | None) -> Callable[[Recipe], str]:
    """Return a function that reads each data set once."""

    @cache
    def read(data: str, seed: int) -> str:
        return load(recipes[data, seed], root=root).digest()

    recipes: dict[tuple[str, int], Recipe] = {}

    def digest(recipe: Recipe) -> str:
        key = recipe.data.model_dump_json(), recipe.seed
        recipes[key] = recipe
        return read(*key)

    return digest
