"""Export a run or a model: as a network for use without advnorm, or as a document.

A network is first copied with plain layers (:mod:`~advnorm.runs.export.inference`), which
every format shares; each format is checked before it is written.
"""

from advnorm.runs.export import onnx_file, torch_file, torchscript_file
from advnorm.runs.export.api import ExportedFiles, export_model
from advnorm.runs.export.checks import ExportCheckError
from advnorm.runs.export.formats import FORMATS

__all__ = [
    "FORMATS",
    "ExportCheckError",
    "ExportedFiles",
    "export_model",
    "onnx_file",
    "torch_file",
    "torchscript_file",
]
