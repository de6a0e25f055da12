"""A page a paper: its claims on top, then tables with ours beside theirs, then figures."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advnorm.records import MARKS, Panel, Reproduction, counted
from advnorm.report import diagnosis_panels, figures, reproduced_figure
from advnorm.report.diagnoses import picture_urls
from advnorm.report.reproductions import ReproductionTable, build_table
from advnorm.report.styles import STYLES
from advnorm.report.template import environment

MOST_PANELS = 24
"""Panels of one artefact beyond these are left out."""


@dataclass(frozen=True)
class ArtefactSection:
    """One artefact, as the page has it."""

    record: Reproduction
    name: str
    table: ReproductionTable
    figure: figures.SvgPanel | None
    panels: tuple[figures.SvgPanel, ...]
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


def _shown(record: Reproduction, prefix: str) -> ArtefactSection:
    drawn = [panel for panel in record.drawn if panel.kind != "pictures"]
    pictures = [panel for panel in record.drawn if panel.kind == "pictures"]
    return ArtefactSection(
        record=record,
        name=_title(record.artefact.partition("/")[2]),
        table=build_table(record),
        figure=reproduced_figure.lines(record, f"{prefix}-own") if record.x else None,
        panels=tuple(_panels(drawn[:MOST_PANELS], prefix)),
        galleries=tuple(map(_gallery, pictures[:MOST_PANELS])),
        left_out=max(0, len(drawn) - MOST_PANELS) + max(0, len(pictures) - MOST_PANELS),
    )


def _title(name: str) -> str:
    """Write a caption's name as papers do.

    >>> _title("table13")
    'ReproductionTable 13'
    """
    return re.sub(r"(\d+)", r" \1", name).capitalize()


def _panels(panels: Sequence[Panel], prefix: str) -> Iterator[figures.SvgPanel]:
    for number, panel in enumerate(panels):
        one = diagnosis_panels.StyledPanel(panel.title, STYLES[0], panel)
        yield diagnosis_panels.alone(panel.title, one, f"{prefix}-{number}")


def _gallery(panel: Panel) -> tuple[str, tuple[tuple[str, str], ...]]:
    return panel.title, picture_urls(panel)
