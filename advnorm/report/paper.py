"""The page of a paper: its claims, then our numbers beside the paper's, then figures."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advnorm.records import MARKS, Panel, Reproduction, counted
from advnorm.report import diagnosis_panels, figures
from advnorm.report.diagnoses import picture_urls
from advnorm.report.reproduced_figure import draw_reproduction
from advnorm.report.reproductions import ReproductionTable, build_table
from advnorm.report.styles import STYLES
from advnorm.report.template import environment

MOST_PANELS = 24
"""The most panels of an artefact; further ones are left out."""


@dataclass(frozen=True)
class ArtefactSection:
    """One artefact, as the page has it."""

    record: Reproduction
    table: ReproductionTable
    figure: figures.SvgPanel | None
    panels: tuple[figures.SvgPanel, ...]
    galleries: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    left_out: int

    @property
    def anchor(self) -> str:
        """The artefact without its paper: ``table1``."""
        return self.record.artefact.partition("/")[2]

    @property
    def name(self) -> str:
        """The artefact as papers write it: ``Table 1``."""
        return re.sub(r"(\d+)", r" \1", self.anchor).capitalize()

    @property
    def command(self) -> str:
        """The command that makes it again."""
        record = self.record
        seeds = f" --seeds {record.seeds}" if record.seeds > 1 else ""
        return f"advnorm reproduce {record.artefact} --scale {record.scale}{seeds}"


def render(paper: str, records: Sequence[Reproduction], damaged: Sequence[str] = ()) -> str:
    """Return the page of one paper; ``damaged`` names the records that it leaves out."""
    sections = [_section(record, f"a{number}") for number, record in enumerate(records)]
    claims = [claim for record in records for claim in record.claims if claim.applicable]
    verdicts = Counter(claim.verdict for claim in claims)
    return (
        environment()
        .get_template("paper.html")
        .render(
            paper=paper,
            damaged=damaged,
            sections=sections,
            verdicts=[
                (counted(verdicts[name], name), mark) for name, mark in MARKS.items()
            ],
            judged=verdicts.total(),
            smoke=all(record.scale == "smoke" for record in records),
            machines=list(dict.fromkeys(record.machine for record in records)),
            minutes=sum(record.seconds for record in records) / 60,
        )
    )


def _section(record: Reproduction, prefix: str) -> ArtefactSection:
    drawn = [panel for panel in record.drawn if panel.kind != "pictures"]
    pictures = [panel for panel in record.drawn if panel.kind == "pictures"]
    return ArtefactSection(
        record=record,
        table=build_table(record),
        figure=draw_reproduction(record, f"{prefix}-own") if record.x else None,
        panels=tuple(_panels(drawn[:MOST_PANELS], prefix)),
        galleries=tuple(map(_gallery, pictures[:MOST_PANELS])),
        left_out=max(0, len(drawn) - MOST_PANELS) + max(0, len(pictures) - MOST_PANELS),
    )


def _panels(panels: Sequence[Panel], prefix: str) -> Iterator[figures.SvgPanel]:
    for number, panel in enumerate(panels):
        styled = diagnosis_panels.StyledPanel(panel.title, STYLES[0], panel)
        yield diagnosis_panels.draw_single(panel.title, styled, f"{prefix}-{number}")


def _gallery(panel: Panel) -> tuple[str, tuple[tuple[str, str], ...]]:
    return panel.title, picture_urls(panel)
