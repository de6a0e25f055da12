"""The registry of export formats: each returns its files as bytes, already checked."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from advnorm.registry import Registry
from advnorm.runs.export.source import ExportRequest


class RenderedExport(NamedTuple):
    """The files of an export, and notes for the user."""

    files: dict[Path, bytes]
    notes: tuple[str, ...]


FORMATS: Registry[Callable[[ExportRequest, Path], RenderedExport]] = Registry(
    "export format"
)
"""Each renders an export for ``out``, and raises if it is not what the model computes."""
