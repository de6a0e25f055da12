"""Every table and figure of the five papers, by one command."""

from advnorm.papers import apart2022, galloway2019, sitawarin2021, sridhar2021, xie2020
from advnorm.papers.artefact import ARTEFACTS, ILLUSTRATIONS, Artefact, Job, artefact
from advnorm.papers.reproduce import Place, reproduce, where
from advnorm.papers.selection import (
    Made,
    named,
    refuse,
    reproduce_each,
    rows_of,
    scale_of,
    workers,
)

__all__ = [
    "ARTEFACTS",
    "ILLUSTRATIONS",
    "Artefact",
    "Job",
    "Made",
    "Place",
    "apart2022",
    "artefact",
    "galloway2019",
    "named",
    "refuse",
    "reproduce",
    "reproduce_each",
    "rows_of",
    "scale_of",
    "sitawarin2021",
    "sridhar2021",
    "where",
    "workers",
    "xie2020",
]
