"""Several artefacts by one command: what it asks for, and one after the other made."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from advnorm.papers.artefact import ARTEFACTS, ILLUSTRATIONS
from advnorm.papers.reproduce import Workspace, chosen_jobs, possible, reproduce
from advnorm.progress import Progress
from advnorm.records import SCALES, Reproduction, Scale
from advnorm.registry import unknown
from advnorm.studies.grid import Workers, attempt, imported_ray


class ReproductionOutcome(NamedTuple):
    """What became of an artefact."""

    record: Reproduction | None
    problems: list[str]
    """Why there is no record, or which of its runs failed: to be said at the end."""


def reproduce_each(
    names: Sequence[str],
    workspace: Workspace,
    *,
    scale: Scale = "smoke",
    seeds: int = 1,
    rows: Sequence[str] = (),
    progress: Progress | None = None,
) -> Iterator[ReproductionOutcome]:
    """Reproduce one artefact after the other; one that cannot be made stops no other."""

    def make(name: str) -> Reproduction:
        return reproduce(
            name, workspace, scale=scale, seeds=seeds, rows=rows, progress=progress
        )

    for number, name in enumerate(names):
        _, record, failure = attempt(make, number, name)
        failed = list(record.failed.values()) if record else []
        why = failure.removeprefix("ValueError: ")  # a user's mistake, told in a sentence
        problems = [f"{name} is not made: {why}"] if failure else []
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
    """Refuse mistakes before anything is run, such as a row that an artefact has not."""
    if workspace.out.is_file():
        raise ValueError(f"--out {workspace.out} is a file: choose another --out")
    possible(seeds)
    for name in names:
        try:
            chosen_jobs(ARTEFACTS[name], scale, rows)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def artefact_names(names: Sequence[str]) -> list[str]:
    """Return artefacts by name; a paper's name stands for all of its own."""
    papers = {ARTEFACTS[name].paper for name in ARTEFACTS}
    found: dict[str, None] = {}
    for name in names:
        own = [one for one in ARTEFACTS if name in papers and one.startswith(f"{name}/")]
        if not own and name in ILLUSTRATIONS:
            raise ValueError(f"{name} is {ILLUSTRATIONS[name]}: nothing is measured there")
        if not own and name not in ARTEFACTS:
            raise unknown("artefact", name, [*papers, *ARTEFACTS])
        found |= dict.fromkeys(own or [ARTEFACTS[name].name])
    return list(found)


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


def workers(text: str) -> Workers:
    """Return how many processes work at once, or ``ray``."""
    if text == "ray":
        imported_ray()  # a cluster that cannot be is told before anything is run
        return "ray"
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--on takes a number of processes or ray, not {text!r}")
    return int(text)
