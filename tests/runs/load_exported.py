"""Loads exported networks where advnorm cannot be imported; prints their differences.

``python load_exported.py FOLDER``: each folder inside has ``expected.safetensors`` (images
and logits) and one or more of ``net.py``, ``net.pt`` and ``net.onnx``.
"""

import json
import runpy
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    sys.modules["advnorm"] = None  # any import of it fails from here on

import torch
from safetensors.torch import load_file


def networks(folder):
    if (folder / "net.py").exists():
        yield "torch", runpy.run_path(str(folder / "net.py"))["load"]()
    if (folder / "net.pt").exists():
        yield "torchscript", torch.jit.load(folder / "net.pt")
    if (folder / "net.onnx").exists():
        import onnxruntime

        session = onnxruntime.InferenceSession(folder / "net.onnx")
        yield (
            "onnx",
            lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0]),
        )


def main():
    differences = {}
    for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
        expected = load_file(folder / "expected.safetensors")
        for kind, network in networks(folder):
            for rows in (1, 7):
                with torch.no_grad():
                    logits = network(expected["images"][:rows])
                assert logits.shape == expected["logits"][:rows].shape
                error = (logits - expected["logits"][:rows]).abs().max()
                differences[f"{folder.name} {kind} {rows}"] = float(error)
    sys.stdout.write(json.dumps(differences))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    try:
        import advnorm  # noqa: F401
    except ImportError:
        main()
