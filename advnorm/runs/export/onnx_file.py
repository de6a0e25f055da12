"""``--to onnx``: a graph with a batch of any size, checked with onnxruntime."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from advnorm.runs.export.checks import (
    CheckedExport,
    ExportCheckError,
    Predict,
    check_export,
)
from advnorm.runs.export.failing_layer import first_line, named_failure
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.inference import inference_copy
from advnorm.runs.export.source import ExportRequest, ExportSource

INPUT, OUTPUT = "images", "logits"


@FORMATS.register("onnx")
def onnx_file(request: ExportRequest, out: Path) -> RenderedExport:
    """Write an ONNX file with a dynamic batch, from ``images`` to ``logits``."""
    _require_packages()
    source = request.load()
    model = inference_copy(source.model, source.images[:2], source.branch or "adversarial")
    with _quiet():
        content = _convert(model, source.images, source.facts())
        checked = _check(source, content)
    return RenderedExport({out: content}, (str(checked),))


def _require_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--to onnx needs {error.name}: pip install 'advnorm[onnx]'"
        ) from error


def _convert(model: nn.Module, images: Tensor, facts: dict[str, str]) -> bytes:
    """Return the bytes of the ONNX model."""
    batch = images[torch.arange(2) % len(images)]  # one row alone would be a fixed size
    with named_failure(model, "onnx"):
        program = torch.onnx.export(
            model,
            (batch,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=[INPUT],
            output_names=[OUTPUT],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _drop_traces(proto)
    for key, value in facts.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def _drop_traces(proto: Any) -> None:
    """Drop the stack trace of each node: they name files of this machine."""
    for part in (proto.graph, *proto.functions):
        del part.metadata_props[:]
        for node in (*part.node, *part.value_info):
            del node.metadata_props[:]
    for value in (*proto.graph.initializer, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]


def _check(source: ExportSource, content: bytes) -> CheckedExport:
    """Check the graph as users will run it; say so where its rewriting is what is wrong."""
    try:
        return check_export(source, _predict(content))
    except ExportCheckError as error:
        try:
            check_export(source, _predict(content, optimized=False))
        except ExportCheckError:
            raise error from None
        raise ExportCheckError(
            f"{error}. The graph is right, and onnxruntime changes it when it optimizes: "
            "export to torch or torchscript"
        ) from error


def _predict(content: bytes, *, optimized: bool = True) -> Predict:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimized:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    try:
        session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise NotImplementedError(
            f"onnxruntime cannot run the network ({first_line(error)}), so that the file "
            "cannot be checked: export to torch"
        ) from error

    def predict(images: Tensor) -> Tensor:
        (logits,) = session.run([OUTPUT], {INPUT: images.numpy()})
        return torch.from_numpy(logits)

    return predict


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's output, such as graphs where it fails, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(StringIO()),
            redirect_stderr(StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
