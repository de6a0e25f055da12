"""What a record tells already: numbers of runs whose folders are no longer there.

A run is many megabytes and stays on the machine that made it; a record is a few kilobytes
and is kept. It holds what each job gave under each seed, so that a table may grow over days
and machines: a job is done again only if its recipe, its data or what it asks has changed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path

from advnorm.papers.artefact import Artefact, Job, seeded
from advnorm.papers.defaults import alike, assumed
from advnorm.papers.jobs import Done, decisive, name_of
from advnorm.recipe import Recipe
from advnorm.records import Reproduction, Scale, Told, read_reproduction
from advnorm.training import load_data

Key = tuple[str, int, str]
"""Row, seed, and what is asked."""


class Ledger:
    """What is known of an artefact's jobs: told before, done now, or by other processes."""

    def __init__(
        self, path: Path, artefact: Artefact, scale: Scale, root: Path | None
    ) -> None:
        self.path, self.artefact, self.scale = path, artefact, scale
        self.known: dict[Key, Told] = {}
        self.elsewhere: set[tuple[Key, str]] = set()
        """Lines of runs on other data than those that are here."""
        self.order: dict[int, dict[Key, int]] = {}
        self.digest, self.assumed = _digests(root), assumed()
        self._read()

    def holds(self, job: Job, runs: Path) -> bool:
        """Tell whether a job's numbers are known, and its run is not there to ask again."""
        one = self.known.get(key_of(job))
        if one is None or (runs / one.run).is_dir():
            return False
        if not _is_of(one, job.recipe, self.digest):
            self.elsewhere.add((key_of(job), one.run))
            del self.known[key_of(job)]
            return False
        return True

    def add(self, job: Job, done: Done) -> None:
        """Note down what a job gave; its panels where they are drawn, of the first seed."""
        row, seed, what = key_of(job)
        self.known[row, seed, what] = Told(
            row=row,
            seed=seed,
            asked=what,
            run=done.run,
            numbers=done.numbers,
            counts=done.counts,
            seconds=done.seconds,
            machine=done.machine,
            panels=done.panels if seed == 0 else (),
        )

    def all(self) -> list[Told]:
        """Return all that is known, with what others wrote since, in the table's order."""
        self._read()
        return sorted(self.known.values(), key=lambda one: (self._place(one), one.seed))

    def refuse_losses(self, rows: Sequence[str]) -> None:
        """Refuse to replace a record by chosen rows if it could not tell of its others."""
        record = told_by(self.path)
        if record is None or not rows:
            return
        lost = set(record.rows) - {one.row for one in self.known.values()} - set(rows)
        if lost:
            raise ValueError(
                f"{self.path} is of an older version or of other defaults: its rows "
                f"{', '.join(sorted(lost))} would be lost; make all rows, or choose "
                "another --out"
            )

    def _read(self) -> None:
        """Take in what the record tells, as far as it is still true."""
        record = told_by(self.path)
        if record is None:
            return
        asked = {name for job in self.artefact.jobs(self.scale) for name in job.questions}
        if not alike(record.defaults, self.assumed, asked):
            return
        for one in record.told:
            if self._place(one) >= 0 and (_key(one), one.run) not in self.elsewhere:
                self.known.setdefault(_key(one), one)

    def _place(self, one: Told) -> int:
        """Return the place in the table of the job that a line tells of, or -1."""
        if one.seed not in self.order:
            jobs = self.artefact.jobs(self.scale)
            keys = [key_of(seeded(job, one.seed)) for job in jobs]
            self.order[one.seed] = {key: number for number, key in enumerate(keys)}
        return self.order[one.seed].get(_key(one), -1)


def key_of(job: Job) -> Key:
    """Return where a record tells of a job."""
    return job.row, job.recipe.seed, asked(job)


def asked(job: Job) -> str:
    """Return a hash of all that decides a job's numbers, but for defaults and data."""
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


def told_by(path: Path) -> Reproduction | None:
    """Return the record of an earlier reproduction, if there is one."""
    return read_reproduction(path) if path.is_file() else None


def _key(one: Told) -> Key:
    return one.row, one.seed, one.asked


def _is_of(one: Told, recipe: Recipe, digest: Callable[[Recipe], str]) -> bool:
    """Tell whether a run was of the data that are here; where none can be read, it was."""
    try:
        return name_of(recipe, digest(recipe)) == one.run
    except (OSError, ValueError):
        return True


def _digests(root: Path | None) -> Callable[[Recipe], str]:
    """Return a function that reads each data set once."""

    @cache
    def read(data: str, seed: int) -> str:
        return load_data(recipes[data, seed], root=root).digest()

    recipes: dict[tuple[str, int], Recipe] = {}

    def digest(recipe: Recipe) -> str:
        key = recipe.data.model_dump_json(), recipe.seed
        recipes[key] = recipe
        return read(*key)

    return digest
