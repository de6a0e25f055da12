"""The formats of a network, each by its name: files as bytes, checked before they exist."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from advnorm.registry import Registry
from advnorm.runs.export.source import ExportRequest


class RenderedExport(NamedTuple):
    """The files of an export, and what is to be said about them."""

    files: dict[Path, bytes]
    notes: tuple[str, ...]


FORMATS: Registry[Callable[[ExportRequest, Path], RenderedExport]] = Registry(
    "export format"
)
"""Each renders an export for ``out``, and raises if it is not what the model computes."""
