"""``--to torch``: a Python file that needs torch and safetensors alone, and its weights."""

import runpy
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from advnorm.runs.export.checks import Predict, check_export
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.inference import inference_copy
from advnorm.runs.export.network_source import network_source
from advnorm.runs.export.source import ExportRequest

_HEADER = """\
from collections import OrderedDict
from hashlib import sha256
from math import inf, nan
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import device, nn

WEIGHTS = Path(__file__).with_name({weights!r})
SHA256 = {digest!r}


def parameter(*shape):
    return nn.Parameter(torch.empty(shape))


def buffer(*shape):
    return nn.Buffer(torch.empty(shape))
"""
_LOAD = '''\
def load(path=WEIGHTS):
    """Return the network in evaluation mode, with the weights beside this file."""
    if sha256(Path(path).read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"{path} does not have the weights that this file was written for")
    net = Net()
    net.load_state_dict(load_file(path), assign=True)
    return net.eval()
'''


@FORMATS.register("torch")
def torch_files(request: ExportRequest, out: Path) -> RenderedExport:
    """Write a Python file that builds the network without advnorm, and its weights."""
    if out.suffix != ".py" or not out.stem.isidentifier():
        raise ValueError(
            f"--to torch writes a Python module and NAME.safetensors beside it: give "
            f"--out NAME.py, not {out.name}"
        )
    source = request.load()
    model = inference_copy(source.model, source.images[:2], source.branch or "adversarial")
    facts, weights = source.facts(), out.with_suffix(".safetensors")
    tensors = dump_tensors(_tensors(model), metadata=facts)
    module = _module_text(model, facts, weights.name, sha256(tensors).hexdigest())
    files = {weights: tensors, out: module.encode()}
    with TemporaryDirectory() as folder:
        checked = check_export(source, _predict(files, Path(folder)))
    return RenderedExport(files, (str(checked),))


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights with plain keys; a tensor that is used twice has two copies."""
    state = {**dict(model.named_buffers(remove_duplicate=False)), **model.state_dict()}
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in state.items()
    }


def _module_text(model: nn.Module, facts: dict[str, str], weights: str, digest: str) -> str:
    """Return the whole Python file."""
    described = "\n".join(
        fill(f"{key}: {value}", 88, subsequent_indent="    ")
        for key, value in facts.items()
    )
    doc = described.replace("\\", "/").replace('"', "'")
    head = _HEADER.format(weights=weights, digest=digest)
    title = "A network as plain PyTorch; call load()."
    parts = [f'"""{title}\n\n{doc}\n"""\n\n{head}', network_source(model), _LOAD]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _predict(files: dict[Path, bytes], folder: Path) -> Predict:
    """Load the files as a user would, and return the network."""
    for path, content in files.items():
        (folder / path.name).write_bytes(content)
    module = next(path.name for path in files if path.suffix == ".py")
    net: nn.Module = runpy.run_path(str(folder / module))["load"]()

    def predict(images: Tensor) -> Tensor:
        with torch.no_grad():
            output: Tensor = net(images)
        return output

    return predict
