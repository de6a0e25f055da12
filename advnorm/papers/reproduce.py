"""Regenerates one table or figure: its runs, its numbers over seeds, its claims."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import NamedTuple

import torch

from advnorm import ranks
from advnorm.files import locked, write_alone
from advnorm.papers.artefact import ARTEFACTS, Artefact, Job, seeded
from advnorm.papers.jobs import JobResult, run_job, training_settings
from advnorm.papers.ledger import Key, Ledger, entry_key, job_key
from advnorm.papers.numbers import Number, behind
from advnorm.progress import Progress, Quiet
from advnorm.records import LedgerEntry, Measured, Reproduction, Scale
from advnorm.registry import unknown
from advnorm.studies.grid import TaskOutcome, Workers, attempt, run_tasks


@dataclass(frozen=True)
class Workspace:
    """Where and with what a reproduction is done."""

    out: Path
    """Run folders go to ``runs`` below it, the record beside them."""
    data: Path | None = None
    device: str = "auto"
    on: Workers = 1


_Columns = dict[str, dict[int, Number]]
"""Numbers by column and seed."""


class _Task(NamedTuple):
    """The jobs of one run folder."""

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

    It is written anew after each run, so that a stopped reproduction shows what it has.
    Entries of the record are not computed again where their runs are gone. With
    ``rows``, only those of the table are made, beside other entries of the record.
    """
    possible(seeds)
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
        with _turn(path):
            entries = ledger.all()
            done = [one for one in entries if entry_key(one) not in failed]
            count = max([seeds, *(one.seed + 1 for one in entries)])
            failures = {
                _title(job, chosen): failed[job_key(job)]
                for job in jobs
                if job_key(job) in failed
            }
            record = gather(artefact, scale, count, done, failures)
            kept = {"entries": tuple(entries), "defaults": ledger.defaults}
            record = record.model_copy(update=kept)
            write_alone(path, record.model_dump_json().encode())
        return record

    for count, outcome in enumerate(run_tasks(_work, tasks, on=workspace.on), start=1):
        task = tasks[outcome.number]
        each = outcome.result or [TaskOutcome(0, None, outcome.failure)] * len(task.jobs)
        for job, one in zip(task.jobs, each, strict=True):
            if one.result is None:
                failed[job_key(job)] = one.failure
            else:
                ledger.add(job, one.result)
        progress.update(count, len(tasks), f"{name}: runs, {len(failed)} failed")
        write()
    return write()


def possible(seeds: int) -> None:
    """Refuse no seeds at all, and ranks: a run's lock would keep them from each other."""
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: at least one")
    with ranks.process_group(torch.device("cpu")):
        ranks.require_single_process(
            "reproduce has whole runs made side by side, with --on 4 or --on ray"
        )


def _turn(path: Path) -> AbstractContextManager[object]:
    """Wait until no other process writes a record."""
    turns = path.parent.parent / ".turns"
    turns.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return locked(turns / f"{path.parent.name}-{path.stem}", wait=True)


def chosen_jobs(artefact: Artefact, scale: Scale, rows: Sequence[str]) -> list[Job]:
    """Return the jobs of some rows, and of the one that they are shown as ratios to."""
    jobs = artefact.jobs(scale)
    there = dict.fromkeys(job.row for job in jobs)
    for row in rows:
        if row not in there:
            raise unknown("row", row, list(there))
    return [job for job in jobs if not rows or job.row in (*rows, artefact.relative_to)]


def _title(job: Job, all_jobs: Sequence[Job]) -> str:
    """Name a job, with its columns where its row has several."""
    several = sum(other.row == job.row for other in all_jobs) > 1
    which = f" ({', '.join(job.numbers)})" if several else ""
    return f"{job.row}{which}, seed {job.recipe.seed}"


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
    """Put the numbers of all runs into one record and judge the claims."""
    values, runs = _values(artefact, done), defaultdict[str, list[str]](list)
    for one in sorted(done, key=lambda one: one.seed):
        if one.run not in runs[one.row]:
            runs[one.row].append(one.run)
    order = dict.fromkeys(job.row for job in artefact.jobs(scale))
    rows = {
        row: {
            column: Measured(
                values=tuple(number.value for number in numbers.values()),
                seeds=() if len(numbers) == seeds else tuple(numbers),
                n=behind(numbers.values()),
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
        machine="; ".join(dict.fromkeys(one.machine for one in done if one.machine)),
        seconds=sum({one.run: one.seconds for one in done}.values()),
    )
    return with_claims(artefact, record)


def with_claims(artefact: Artefact, record: Reproduction) -> Reproduction:
    """Put the paper's numbers beside those of a record, and judge the claims by its own."""
    rows = {
        row: {
            column: cell.model_copy(
                update={"published": artefact.published_at(row, column)}
            )
            for column, cell in cells.items()
        }
        for row, cells in record.rows.items()
    }
    claims = tuple(claim.check(rows, record.scale) for claim in artefact.claims)
    return record.model_copy(update={"rows": rows, "claims": claims})


def _values(artefact: Artefact, done: Sequence[LedgerEntry]) -> dict[str, _Columns]:
    """Return each row's numbers by seed; where so shown, as ratios to another row's."""
    values: dict[str, _Columns] = defaultdict(lambda: defaultdict(dict))
    base = artefact.relative_to
    bases = {one.seed: one.numbers for one in done if one.row == base}
    for one in sorted(done, key=lambda one: one.seed):
        for column, value in one.numbers.items():
            number = Number(value, one.counts.get(column))
            if base and one.row != base:
                if column not in bases.get(one.seed, {}):
                    continue
                below = bases[one.seed][column]
                number = Number(value / below if below else nan)
            values[one.row][column][one.seed] = number
    return values


def _tasks(
    jobs: Sequence[Job], artefact: Artefact, workspace: Workspace, progress: Progress
) -> list[_Task]:
    """Put jobs of the same runs together: two processes must not train one at once."""
    groups: list[tuple[set[str], list[Job]]] = []
    for job in jobs:
        runs = {training_settings(recipe) for recipe in (job.recipe, *job.targets.values())}
        shared = [group for group in groups if group[0] & runs] or [(set(), [])]
        if not shared[0][1]:
            groups.append(shared[0])
        for names, others in shared[1:]:
            shared[0][0].update(names)
            shared[0][1].extend(others)
            groups.remove((names, others))
        shared[0][0].update(runs)
        shared[0][1].append(job)
    here = progress if workspace.on == 1 else None
    workspace = replace(  # workers of Ray are in a folder of their own
        workspace,
        out=workspace.out.absolute(),
        data=workspace.data and workspace.data.absolute(),
    )
    return [
        _Task(tuple(group), tuple(artefact.shown), workspace, here) for _, group in groups
    ]


def _work(task: _Task) -> list[TaskOutcome[JobResult]]:
    """Do the jobs of a task; one that fails does not stop the rest."""

    def work(job: Job) -> JobResult:
        return run_job(
            job,
            task.workspace.out / "runs",
            shown=task.shown,
            root=task.workspace.data,
            device=task.workspace.device,
            progress=task.progress,
        )

    return [attempt(work, number, job) for number, job in enumerate(task.jobs)]
