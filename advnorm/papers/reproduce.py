"""Regenerate one table or figure: its runs, its numbers over seeds, its claims."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import NamedTuple

import torch

from advnorm import ranks
from advnorm.files import write_alone
from advnorm.papers.artefact import ARTEFACTS, Artefact, Job, seeded
from advnorm.papers.images import NumbersOfImages, images_of
from advnorm.papers.jobs import JobResult, run_job, runs_of
from advnorm.papers.ledger import Key, Ledger, entry_key, job_key
from advnorm.papers.numbers import Number, sample_count
from advnorm.progress import Progress, Quiet
from advnorm.records import LedgerEntry, Measured, Reproduction, Scale
from advnorm.registry import unknown
from advnorm.studies.grid import TaskOutcome, Workspace, attempt, group_by_runs, run_tasks
from advnorm.studies.trained_runs import wait_for_lock

_Columns = dict[str, dict[int, Number]]
"""Numbers by column and seed."""


class _Task(NamedTuple):
    """Jobs that share runs."""

    jobs: tuple[Job, ...]
    shown: tuple[str, ...]
    workspace: Workspace
    progress: Progress | None


def reproduce(
    name: str,
    workspace: Workspace,
    *,
    scale: Scale = "smoke",
    seeds: int = 1,
    rows: Sequence[str] = (),
    progress: Progress | None = None,
) -> Reproduction:
    """Do what is left of an artefact's runs and write its record.

    The record is written after each run, so that an interrupted reproduction shows what it
    has. Entries of the record are not computed again where their runs are gone. With
    ``rows``, only those rows are computed; other entries of the record stay.
    """
    check_seeds(seeds)
    artefact, progress = ARTEFACTS[name], progress or Quiet()
    path = record_path(workspace.out, name, scale)
    chosen = chosen_jobs(artefact, scale, rows)
    ledger = Ledger(path, artefact, scale, workspace.data)
    ledger.refuse_losses(rows)
    jobs = [seeded(job, seed) for seed in range(seeds) for job in chosen]
    jobs = [job for job in jobs if not ledger.has(job, workspace.out / "runs")]
    tasks = _tasks(jobs, artefact, workspace, progress)
    failed: dict[Key, str] = {}

    def write() -> Reproduction:
        path.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(workspace.out, f"{path.parent.name}-{path.stem}"):
            entries = ledger.all()
            done = [entry for entry in entries if entry_key(entry) not in failed]
            count = max([seeds, *(entry.seed + 1 for entry in entries)])
            failures = {
                _title(job, chosen): failed[job_key(job)]
                for job in jobs
                if job_key(job) in failed
            }
            record = gather(artefact, scale, count, done, failures)
            record = record.model_copy(
                update={"entries": tuple(entries), "defaults": ledger.defaults}
            )
            write_alone(path, record.model_dump_json().encode())
        return record

    for count, outcome in enumerate(run_tasks(_run, tasks, on=workspace.on), start=1):
        task = tasks[outcome.number]
        all_failed = [TaskOutcome(0, None, outcome.failure)] * len(task.jobs)
        for job, done in zip(task.jobs, outcome.result or all_failed, strict=True):
            if done.result is None:
                failed[job_key(job)] = done.failure
            else:
                ledger.add(job, done.result)
        progress.update(count, len(tasks), f"{name}: runs, {len(failed)} failed")
        write()
    return write()


def check_seeds(seeds: int) -> None:
    """Refuse no seeds at all, and several ranks: the lock of a run would block them."""
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one")
    with ranks.process_group(torch.device("cpu")):
        ranks.require_single_process(
            "reproduce trains several runs at once with --on 4 or --on ray"
        )


def chosen_jobs(artefact: Artefact, scale: Scale, rows: Sequence[str]) -> list[Job]:
    """Return the jobs of some rows, and of the one that they are shown as ratios to."""
    jobs = artefact.jobs(scale)
    all_rows = list(dict.fromkeys(job.row for job in jobs))
    for row in rows:
        if row not in all_rows:
            raise unknown("row", row, all_rows)
    return [job for job in jobs if not rows or job.row in (*rows, artefact.relative_to)]


def _title(job: Job, all_jobs: Sequence[Job]) -> str:
    """Name a job, with its columns where its row has several."""
    same_row = sum(other.row == job.row for other in all_jobs)
    columns = f" ({', '.join(job.numbers)})" if same_row > 1 else ""
    return f"{job.row}{columns}, seed {job.recipe.seed}"


def record_path(out: Path, name: str, scale: Scale) -> Path:
    """Return the file of an artefact's record."""
    return out / name.partition("/")[0] / f"{name.partition('/')[2]}-{scale}.json"


def gather(
    artefact: Artefact,
    scale: Scale,
    seeds: int,
    done: Sequence[LedgerEntry],
    failed: Mapping[str, str],
) -> Reproduction:
    """Put the numbers of all runs into one record and check the claims."""
    values, runs = _values(artefact, done), defaultdict[str, list[str]](list)
    for entry in sorted(done, key=lambda entry: entry.seed):
        if entry.run not in runs[entry.row]:
            runs[entry.row].append(entry.run)
    order = dict.fromkeys(job.row for job in artefact.jobs(scale))
    rows = {
        row: {
            column: Measured(
                values=tuple(number.value for number in numbers.values()),
                seeds=() if len(numbers) == seeds else tuple(numbers),
                n=sample_count(numbers.values()),
            )
            for column, numbers in values[row].items()
        }
        for row in order
        if row in values
    }
    record = Reproduction(
        artefact=artefact.name,
        title=artefact.title,
        scale=scale,
        seeds=seeds,
        columns=tuple(dict.fromkeys(c for row in rows.values() for c in row)),
        rows=rows,
        x=artefact.x,
        y=artefact.y,
        runs={row: tuple(names) for row, names in runs.items()},
        failed=dict(failed),
        machine="; ".join(dict.fromkeys(entry.machine for entry in done if entry.machine)),
        seconds=sum({entry.run: entry.seconds for entry in done}.values()),
    )
    return with_claims(artefact, record, done)


def with_claims(
    artefact: Artefact, record: Reproduction, entries: Sequence[LedgerEntry] = ()
) -> Reproduction:
    """Put the paper's numbers beside those of a record, and check the claims on its own."""
    rows = {
        row: {
            column: number.model_copy(
                update={"published": artefact.published_at(row, column)}
            )
            for column, number in numbers.items()
        }
        for row, numbers in record.rows.items()
    }
    judged = record.model_copy(update={"rows": rows})
    numbers = numbers_of(artefact, judged, entries)
    claims = tuple(claim.check(numbers, record.scale) for claim in artefact.claims)
    return judged.model_copy(update={"claims": claims})


def numbers_of(
    artefact: Artefact, record: Reproduction, entries: Sequence[LedgerEntry] = ()
) -> NumbersOfImages:
    """Return the numbers of a record, with the images in its entries; ratios have none."""
    images = {} if artefact.relative_to else images_of(entries or record.entries)
    return NumbersOfImages(record.rows, images)


def _values(artefact: Artefact, done: Sequence[LedgerEntry]) -> dict[str, _Columns]:
    """Return each row's numbers by seed, as ratios to ``relative_to`` where it is set."""
    values: dict[str, _Columns] = defaultdict(lambda: defaultdict(dict))
    base = artefact.relative_to
    bases: dict[int, dict[str, float]] = defaultdict(dict)
    for entry in done:
        if entry.row == base:  # several entries, where its columns are of several jobs
            bases[entry.seed] |= entry.numbers
    for entry in sorted(done, key=lambda entry: entry.seed):
        for column, value in entry.numbers.items():
            number = Number(value, entry.counts.get(column))
            if base and entry.row != base:
                if column not in bases.get(entry.seed, {}):
                    continue
                divisor = bases[entry.seed][column]
                number = Number(value / divisor if divisor else nan)
            values[entry.row][column][entry.seed] = number
    return values


def _tasks(
    jobs: Sequence[Job], artefact: Artefact, workspace: Workspace, progress: Progress
) -> list[_Task]:
    """Put jobs of the same runs together."""
    own_progress = progress if workspace.on == 1 else None
    workspace = replace(  # workers of Ray are in a folder of their own
        workspace,
        out=workspace.out.absolute(),
        data=workspace.data and workspace.data.absolute(),
    )
    return [
        _Task(tuple(group), tuple(artefact.shown), workspace, own_progress)
        for group in group_by_runs(jobs, runs_of)
    ]


def _run(task: _Task) -> list[TaskOutcome[JobResult]]:
    """Run the jobs of a task; one that fails does not stop the others."""

    def run(job: Job) -> JobResult:
        return run_job(
            job,
            task.workspace.out / "runs",
            shown=task.shown,
            root=task.workspace.data,
            device=task.workspace.device,
            progress=task.progress,
        )

    return [attempt(run, number, job) for number, job in enumerate(task.jobs)]
