"""Export a run or a model: as a network for use without advnorm, or as a document.

A network is first copied with plain layers (:mod:`~advnorm.runs.export.inference`), which
every format shares; each format is checked before it is written.
"""

from advnorm.runs.export import (
    card,
    onnx_file,
    robustbench,
    torch_file,
    torchscript_file,
)
from advnorm.runs.export.api import ExportedFiles, FormatName, export_model, export_request
from advnorm.runs.export.checks import ExportCheckError
from advnorm.runs.export.formats import FORMATS
from advnorm.runs.export.source import ExportRequest

__all__ = [
    "FORMATS",
    "ExportCheckError",
    "ExportRequest",
    "ExportedFiles",
    "FormatName",
    "card",
    "export_model",
    "export_request",
    "onnx_file",
    "robustbench",
    "torch_file",
    "torchscript_file",
]
