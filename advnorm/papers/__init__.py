"""Every table and figure of the five papers, by one command."""

from advnorm.papers import apart2022, galloway2019, sitawarin2021, sridhar2021, xie2020
from advnorm.papers.artefact import ARTEFACTS, ILLUSTRATIONS, Artefact, Job, artefact
from advnorm.papers.reproduce import (
    Place,
    named,
    reproduce,
    rows_of,
    scale_of,
    where,
    workers,
)

__all__ = [
    "ARTEFACTS",
    "ILLUSTRATIONS",
    "Artefact",
    "Job",
    "Place",
    "apart2022",
    "artefact",
    "galloway2019",
    "named",
    "reproduce",
    "rows_of",
    "scale_of",
    "sitawarin2021",
    "sridhar2021",
    "where",
    "workers",
    "xie2020",
]
