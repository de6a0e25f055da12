"""Every table and figure of the five papers, by one command."""

from advnorm.papers import apart2022, galloway2019, sitawarin2021, sridhar2021, xie2020
from advnorm.papers.artefact import ARTEFACTS, ILLUSTRATIONS, Artefact, Job, artefact
from advnorm.papers.reproduce import record_path, reproduce
from advnorm.papers.selection import (
    ReproductionOutcome,
    artefact_names,
    check_request,
    reproduce_each,
    rows_of,
    scale_of,
)
from advnorm.studies.grid import Workspace

__all__ = [
    "ARTEFACTS",
    "ILLUSTRATIONS",
    "Artefact",
    "Job",
    "ReproductionOutcome",
    "Workspace",
    "apart2022",
    "artefact",
    "artefact_names",
    "check_request",
    "galloway2019",
    "record_path",
    "reproduce",
    "reproduce_each",
    "rows_of",
    "scale_of",
    "sitawarin2021",
    "sridhar2021",
    "xie2020",
]
