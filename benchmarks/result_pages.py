"""Keeps the verdicts and stars in docs/results/PAPER.md those of the records.

The sentences of these pages are written by hand. What a program decides, it also writes:
the verdict behind each claim, and the star of each number that differs from the paper's.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from advnorm.records import Reproduction
from advnorm.report.reproductions import build_table

_COMMAND = re.compile(r"advnorm reproduce (\S+/\S+) --scale (\w+)")
_CELL = re.compile(r"(?<=\| )[^|]+(?= \|)")
_VERDICT = r"\*\*does not hold\*\*|cannot be told|holds|not judged at this scale"
_CLAIM = re.compile(rf"^- (.+?): (?:{_VERDICT})(?=$| \()")


def updated_page(path: Path, records: Iterable[Reproduction]) -> str:
    """Return a page with the verdicts and stars of the records."""
    by_name = {(record.artefact, record.scale): record for record in records}
    lines, record = [], None
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            record = None
        if command := _COMMAND.search(line):
            record = by_name.get((command[1], command[2]))
        lines.append(line if record is None else _updated(line, record))
    return "\n".join(lines) + "\n"


def _updated(line: str, record: Reproduction) -> str:
    if line.startswith("|"):
        stars = _stars(record)
        return _CELL.sub(lambda cell: stars.get(_bare(cell[0]), cell[0]), line)
    claim = _CLAIM.match(line)
    for each in record.claims if claim else ():
        if claim and each.text == claim[1]:
            verdict = each.summary
            bold = f"**{verdict}**" if each.verdict == "does not hold" else verdict
            return f"- {each.text}: {bold}{line[claim.end() :]}"
    return line


def _stars(record: Reproduction) -> dict[str, str]:
    """Return the cells of a record's table by what they are without a star."""
    cells = {}
    for _, numbers in build_table(record).rows:
        for number in numbers:
            if number is not None and number.theirs:
                text = f"{number.ours} {number.theirs}"
                cells[_bare(text)] = text
    return cells


def _bare(cell: str) -> str:
    return cell.replace("* [", " [")
