"""Several artefacts by one command: which, and their reproductions one after the other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advnorm.papers.artefact import ARTEFACTS, ILLUSTRATIONS
from advnorm.papers.reproduce import check_seeds, chosen_jobs, reproduce
from advnorm.progress import Progress
from advnorm.records import SCALES, Reproduction, Scale
from advnorm.registry import unknown
from advnorm.studies.grid import Workspace, attempt


class ReproductionOutcome(NamedTuple):
    """The record of an artefact, and what went wrong."""

    record: Reproduction | None
    problems: list[str]
    """Why there is no record, or which of its runs failed."""


def reproduce_each(
    names: Sequence[str],
    workspace: Workspace,
    *,
    scale: Scale = "smoke",
    seeds: int = 1,
    rows: Sequence[str] = (),
    progress: Progress | None = None,
) -> Iterator[ReproductionOutcome]:
    """Reproduce one artefact after the other; one that fails does not stop the others."""

    def run(name: str) -> Reproduction:
        return reproduce(
            name, workspace, scale=scale, seeds=seeds, rows=rows, progress=progress
        )

    for number, name in enumerate(names):
        _, record, failure = attempt(run, number, name)
        failed = list(record.failed.values()) if record else []
        reason = failure.removeprefix("ValueError: ")  # a user's mistake needs no type
        problems = [f"{name} was not reproduced: {reason}"] if failure else []
        if failed:
            problems.append(f"{name}: {len(failed)} failed, the first with {failed[0]}")
        yield ReproductionOutcome(record, problems)


def check_request(
    names: Sequence[str],
    workspace: Workspace,
    *,
    scale: Scale,
    seeds: int,
    rows: Sequence[str],
) -> None:
    """Refuse mistakes before anything runs, such as an unknown row."""
    if workspace.out.is_file():
        raise ValueError(f"--out {workspace.out} is a file: choose another --out")
    check_seeds(seeds)
    for name in names:
        try:
            chosen_jobs(ARTEFACTS[name], scale, rows)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def artefact_names(names: Sequence[str]) -> list[str]:
    """Return names of artefacts; the name of a paper stands for all of its artefacts."""
    papers = {ARTEFACTS[name].paper for name in ARTEFACTS}
    chosen: dict[str, None] = {}
    for name in names:
        if name in papers:
            chosen |= dict.fromkeys(a for a in ARTEFACTS if ARTEFACTS[a].paper == name)
        elif name in ILLUSTRATIONS:
            raise ValueError(f"{name} is {ILLUSTRATIONS[name]}: nothing is measured there")
        elif name not in ARTEFACTS:
            raise unknown("artefact", name, [*papers, *ARTEFACTS])
        else:
            chosen[ARTEFACTS[name].name] = None
    return list(chosen)


def rows_of(changes: Sequence[str]) -> list[str]:
    """Return the rows that ``row=NAME`` settings ask for.

    >>> rows_of(["row=GD + WD", "row=28, batch norm"])
    ['GD + WD', '28, batch norm']
    """
    for change in changes:
        if not change.startswith("row="):
            raise ValueError(f"reproduce takes --set row=NAME, not {change!r}")
    return [change.removeprefix("row=") for change in changes]


def scale_of(name: str) -> Scale:
    """Return a scale by its name."""
    for scale in SCALES:
        if name == scale:
            return scale
    raise unknown("scale", name, list(SCALES))
