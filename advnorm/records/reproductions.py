"""A folder of reproductions: which records are in it."""

import re
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from advnorm.files import read_bytes
from advnorm.records.artefacts import SCALES, Reproduction
from advnorm.records.reading import EARLIER_VERSION, first_mistake, is_of_earlier_version

_REMEDY = (
    "remove it and reproduce again (runs that are still there are not made anew), or put "
    "back a copy"
)


class Reproductions(NamedTuple):
    """What a folder holds, by paper."""

    papers: dict[str, list[Reproduction]]
    damaged: dict[str, list[str]]
    """Files that cannot be read: a sentence each, with the path and what to do."""


def holds_reproductions(folder: Path) -> bool:
    """Tell whether a folder is one that ``advnorm reproduce`` wrote."""
    records = chain.from_iterable(folder.glob(f"*/*-{scale}.json") for scale in SCALES)
    return next(records, None) is not None


def reproductions(folder: Path) -> Reproductions:
    """Return the records below a folder, tables first; a damaged one stops no other.

    Of an artefact that was made at several scales, the largest with something in it counts.
    """
    by_artefact: dict[str, Reproduction] = {}
    damaged: dict[str, list[str]] = {}
    for scale in SCALES:
        for path in sorted(folder.glob(f"*/*-{scale}.json")):
            try:
                record = read_reproduction(path)
            except ValueError as error:
                damaged.setdefault(path.parent.name, []).append(str(error))
                continue
            if record.rows or record.failed:
                by_artefact[record.artefact] = record
    papers: dict[str, list[Reproduction]] = {}
    for name in sorted(by_artefact, key=_order):
        papers.setdefault(name.partition("/")[0], []).append(by_artefact[name])
    return Reproductions(papers, damaged)


def read_reproduction(path: Path) -> Reproduction:
    """Return the record in a file, or say which file is damaged, where, and what to do."""
    try:
        return Reproduction.model_validate_json(read_bytes(path, Reproduction.LIMIT))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {_REMEDY}") from error
    except ValidationError as error:
        if is_of_earlier_version(error, Reproduction):
            raise ValueError(f"{path} {EARLIER_VERSION}") from None
        what = first_mistake(error)
        raise ValueError(
            f"{path} is not the record of a reproduction ({what}): {_REMEDY}"
        ) from None


def _order(name: str) -> tuple[str, bool, int]:
    """Sort tables before figures, each by number.

    >>> sorted(["a/figure10", "a/figure2", "a/table1"], key=_order)
    ['a/table1', 'a/figure2', 'a/figure10']
    """
    paper, _, caption = name.partition("/")
    number = re.sub(r"\D", "", caption)
    return paper, not caption.startswith("table"), int(number or 0)
