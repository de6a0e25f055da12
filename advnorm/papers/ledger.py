"""The ledger of an artefact: numbers of runs whose folders are gone, kept in its record.

A run is many megabytes and stays on the machine that made it; a record is a few kilobytes
and is kept. It holds the numbers of each job and seed, so that a table may grow over days
and machines: a job runs again only if its recipe, its data or its questions have changed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel

from advnorm.papers.artefact import Artefact, Job, evaluation_recipes, seeded
from advnorm.papers.jobs import JobResult
from advnorm.recipe import Recipe
from advnorm.records import LedgerEntry, Reproduction, Scale, read_reproduction
from advnorm.studies.defaults import default_settings, same_defaults
from advnorm.studies.trained_runs import run_name, training_settings
from advnorm.training import load_data

Key = tuple[str, int, str]
"""Row, seed and fingerprint of a job."""


class Ledger:
    """The entries of an artefact: of earlier reproductions, and of other processes."""

    def __init__(
        self, path: Path, artefact: Artefact, scale: Scale, root: Path | None
    ) -> None:
        self.path, self.artefact, self.scale = path, artefact, scale
        self.entries: dict[Key, LedgerEntry] = {}
        self.of_other_data: set[tuple[Key, str]] = set()
        """Entries whose runs had other data than those that are here."""
        self.order: dict[int, dict[Key, int]] = {}
        self.digest, self.defaults = _digests(root), default_settings()
        self._read()

    def has(self, job: Job, runs: Path) -> bool:
        """Tell whether a job has an entry, and its run is not there to be read again."""
        entry = self.entries.get(job_key(job))
        if entry is None or (runs / entry.run).is_dir():
            return False
        if not _has_data_of(entry, job.recipe, self.digest):
            self.of_other_data.add((job_key(job), entry.run))
            del self.entries[job_key(job)]
            return False
        return True

    def add(self, job: Job, result: JobResult) -> None:
        """Enter the numbers of a job; panels of the first seed only."""
        row, seed, fingerprint = job_key(job)
        self.entries[row, seed, fingerprint] = LedgerEntry(
            row=row,
            seed=seed,
            fingerprint=fingerprint,
            run=result.run,
            numbers=result.numbers,
            counts=result.counts,
            images=result.images,
            seconds=result.seconds,
            machine=result.machine,
            panels=result.panels if seed == 0 else (),
        )

    def all(self) -> list[LedgerEntry]:
        """Return all entries, with those of other processes, in the table's order."""
        self._read()
        entries = self.entries.values()
        return sorted(entries, key=lambda entry: (self._place(entry), entry.seed))

    def refuse_losses(self, rows: Sequence[str]) -> None:
        """Refuse to replace a record by some rows if its other rows have no entries."""
        record = record_at(self.path)
        if record is None or not rows:
            return
        entered = {entry.row for entry in self.entries.values()}
        lost = set(record.rows) - entered - set(rows)
        if lost:
            raise ValueError(
                f"{self.path} is of an older version or of other defaults: its rows "
                f"{', '.join(sorted(lost))} would be lost; make all rows, or choose "
                "another --out"
            )

    def _read(self) -> None:
        """Add the entries of the record that are of today's jobs and defaults."""
        record = record_at(self.path)
        if record is None:
            return
        questions = {q for job in self.artefact.jobs(self.scale) for q in job.questions}
        if not same_defaults(record.defaults, self.defaults, questions):
            return
        for entry in record.entries:
            key = entry_key(entry)
            if self._place(entry) >= 0 and (key, entry.run) not in self.of_other_data:
                self.entries.setdefault(key, entry)

    def _place(self, entry: LedgerEntry) -> int:
        """Return the place in the table of an entry's job, or -1."""
        if entry.seed not in self.order:
            jobs = self.artefact.jobs(self.scale)
            keys = [job_key(seeded(job, entry.seed)) for job in jobs]
            self.order[entry.seed] = {key: number for number, key in enumerate(keys)}
        return self.order[entry.seed].get(entry_key(entry), -1)


def job_key(job: Job) -> Key:
    """Return the key of a job's entry."""
    return job.row, job.recipe.seed, job_fingerprint(job)


def entry_key(entry: LedgerEntry) -> Key:
    """Return the key of an entry."""
    return entry.row, entry.seed, entry.fingerprint


def job_fingerprint(job: Job) -> str:
    """Return a hash of all that decides a job's numbers, but for defaults and data."""
    recipes = {"": job.recipe, **job.targets}
    values = {
        "numbers": job.numbers,
        "questions": job.questions,
        "samples": job.samples,
        "evaluations": [recipe.evaluation for recipe in evaluation_recipes(job)],
        "perturbed": job.perturbed,
        "sections": [
            (recipe.evaluation, recipe.perturbation) for recipe in recipes.values()
        ],
        "trained": {name: training_settings(recipe) for name, recipe in recipes.items()},
    }
    text = json.dumps(values, sort_keys=True, default=_changed_settings)
    return sha256(text.encode()).hexdigest()[:16]


def _changed_settings(value: object) -> dict[str, object]:
    """Return the fields of a section or a number source that are not at their defaults."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    assert is_dataclass(value)
    settings = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: setting for each, setting in settings if setting != each.default}


def record_at(path: Path) -> Reproduction | None:
    """Return the record of an earlier reproduction, if there is one."""
    return read_reproduction(path) if path.is_file() else None


def _has_data_of(
    entry: LedgerEntry, recipe: Recipe, digest: Callable[[Recipe], str]
) -> bool:
    """Tell whether a run was of the data that are here; yes where none can be read."""
    try:
        return run_name(recipe, digest(recipe)) == entry.run
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
