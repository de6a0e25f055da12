"""A page a paper: its claims on top, then tables with ours beside theirs, then figures."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advnorm.records import MARKS, Panel, Reproduction, counted
from advnorm.report import drawings, figures, reproduced_figure
from advnorm.report.diagnoses import addresses
from advnorm.report.reproductions import Table, tabulated
from advnorm.report.styles import LOOKS
from advnorm.report.template import environment

MOST_DRAWINGS = 24
"""Panels of one artefact beyond these are left out."""


@dataclass(frozen=True)
class Shown:
    """One artefact, as the page has it."""

    record: Reproduction
    name: str
    table: Table
    figure: figures.Panel | None
    panels: tuple[figures.Panel, ...]
    galleries: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    left_out: int

    @property
    def command(self) -> str:
        """What makes it again."""
        record = self.record
        seeds = f" --seeds {record.seeds}" if record.seeds > 1 else ""
        return f"advnorm reproduce {record.artefact} --scale {record.scale}{seeds}"


def render(paper: str, records: Sequence[Reproduction], damaged: Sequence[str] = ()) -> str:
    """Return the page of one paper; ``damaged`` says which records it leaves out."""
    shown = [_shown(record, f"a{number}") for number, record in enumerate(records)]
    claims = [claim for record in records for claim in record.claims if claim.judged]
    verdicts = Counter(claim.verdict for claim in claims)
    return (
        environment()
        .get_template("paper.html")
        .render(
            paper=paper,
            damaged=damaged,
            shown=shown,
            verdicts=[
                (counted(verdicts[name], name), mark) for name, mark in MARKS.items()
            ],
            judged=verdicts.total(),
            smoke=all(record.scale == "smoke" for record in records),
            machines=list(dict.fromkeys(record.machine for record in records)),
            minutes=sum(record.seconds for record in records) / 60,
        )
    )


def _shown(record: Reproduction, prefix: str) -> Shown:
    drawn = [panel for panel in record.drawn if panel.kind != "pictures"]
    pictures = [panel for panel in record.drawn if panel.kind == "pictures"]
    return Shown(
        record=record,
        name=_title(record.artefact.partition("/")[2]),
        table=tabulated(record),
        figure=reproduced_figure.lines(record, f"{prefix}-own") if record.x else None,
        panels=tuple(_panels(drawn[:MOST_DRAWINGS], prefix)),
        galleries=tuple(map(_gallery, pictures[:MOST_DRAWINGS])),
        left_out=max(0, len(drawn) - MOST_DRAWINGS) + max(0, len(pictures) - MOST_DRAWINGS),
    )


def _title(name: str) -> str:
    """Write a caption's name as papers do.

    >>> _title("table13")
    'Table 13'
    """
    return re.sub(r"(\d+)", r" \1", name).capitalize()


def _panels(panels: Sequence[Panel], prefix: str) -> Iterator[figures.Panel]:
    for number, panel in enumerate(panels):
        one = drawings.Shown(panel.title, LOOKS[0], panel)
        yield drawings.alone(panel.title, one, f"{prefix}-{number}")


def _gallery(panel: Panel) -> tuple[str, tuple[tuple[str, str], ...]]:
    return panel.title, addresses(panel)
