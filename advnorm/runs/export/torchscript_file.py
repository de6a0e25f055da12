"""``--to torchscript``: a traced network that ``torch.jit.load`` reads."""

import json
import warnings
from io import BytesIO
from pathlib import Path

import torch
from torch import Tensor, nn

from advnorm.runs.export.checks import Predict, check_export
from advnorm.runs.export.failing_layer import named_failure
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.inference import inference_copy
from advnorm.runs.export.source import ExportRequest

_BRANCHES = (
    "the model branches on values or shapes of tensors, and the file has the branches that "
    "the test images take: for other images it may compute something else"
)


@FORMATS.register("torchscript")
def torchscript_file(request: ExportRequest, out: Path) -> RenderedExport:
    """Write a TorchScript file, for ``torch.jit.load`` in Python or C++."""
    source = request.load()
    model = inference_copy(source.model, source.images[:2], source.branch or "adversarial")
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")  # torch.jit is deprecated, and says so each time
        with named_failure(model, "torchscript"):
            traced = torch.jit.trace(model, source.images[:2], check_trace=False)  # type: ignore[no-untyped-call]
            content = _save(traced, source.facts())
        checked = check_export(source, _predict(content))
    branches = any("to a Python boolean" in str(remark.message) for remark in remarks)
    return RenderedExport({out: content}, (str(checked), *[_BRANCHES] * branches))


def _save(traced: torch.jit.ScriptModule, facts: dict[str, str]) -> bytes:
    buffer = BytesIO()
    extra = {"advnorm.json": json.dumps(facts)}
    torch.jit.save(traced, buffer, _extra_files=extra)
    return buffer.getvalue()


def _predict(content: bytes) -> Predict:
    net: nn.Module = torch.jit.load(BytesIO(content))  # type: ignore[no-untyped-call]

    def predict(images: Tensor) -> Tensor:
        with torch.no_grad():
            output: Tensor = net(images)
        return output

    return predict
