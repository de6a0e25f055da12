"""A folder of reproductions: which records are in it."""

import re
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from advnorm.records.artefacts import SCALES, Reproduction


def holds_reproductions(folder: Path) -> bool:
    """Tell whether a folder is one that ``advnorm reproduce`` wrote."""
    kept = chain.from_iterable(folder.glob(f"*/*-{scale}.json") for scale in SCALES)
    return next(kept, None) is not None


def reproductions(folder: Path) -> dict[str, list[Reproduction]]:
    """Return the records below a folder by paper, tables first.

    Of an artefact that was made at several scales, the largest with something in it counts.
    """
    found: dict[str, Reproduction] = {}
    for scale in SCALES:
        for path in folder.glob(f"*/*-{scale}.json"):
            record = read_reproduction(path)
            if record.rows or record.failed:
                found[record.artefact] = record
    papers: dict[str, list[Reproduction]] = {}
    for name in sorted(found, key=_order):
        papers.setdefault(name.partition("/")[0], []).append(found[name])
    return papers


def read_reproduction(path: Path) -> Reproduction:
    """Return the record in a file."""
    try:
        return Reproduction.model_validate_json(path.read_bytes())
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise ValueError(
            f"{path} is not the record of a reproduction ({what}): remove it"
        ) from None


def _order(name: str) -> tuple[str, bool, int]:
    """Sort tables before figures, each by number.

    >>> sorted(["a/figure10", "a/figure2", "a/table1"], key=_order)
    ['a/table1', 'a/figure2', 'a/figure10']
    """
    paper, _, caption = name.partition("/")
    number = re.sub(r"\D", "", caption)
    return paper, not caption.startswith("table"), int(number or 0)
