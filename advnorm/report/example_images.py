"""Example images as ``data:`` PNGs: clean, adversarial, and their difference."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load as parse_tensors

from advnorm.files import read_bytes
from advnorm.records import Result
from advnorm.report.completion_marks import unfinished_runs, unfinished_text
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.rows import branch_label, threat_label
from advnorm.text import cut

MOST_RUNS = 8
"""The most runs whose images are shown."""
MOST_IMAGES = 8
"""The most images of a run."""
MOST_PIXELS = 128
"""Larger images are subsampled to this side."""
MOST_CHARACTERS = 640_000
"""The most characters of all PNGs of a page; each run has its part of them."""
LARGEST = 1 << 28
"""The largest size of a file of examples, in bytes."""
_FACTORS = (100, 50, 20, 10, 5, 2, 1)
_SAMPLES = "samples"
"""The numbers of the samples; files of earlier versions have none."""
_NAMES = ("clean", "adversarial", "labels", "clean_predictions", "adversarial_predictions")


@dataclass(frozen=True)
class ExampleImage:
    """One image: three PNGs, its label and the predictions."""

    clean: str
    adversarial: str
    difference: str
    label: int
    clean_prediction: int
    adversarial_prediction: int
    sample: int | None = None
    """Its number in the data; ``None`` in files that are older than this field."""

    @property
    def size(self) -> int:
        """The characters of its PNGs."""
        return len(self.clean) + len(self.adversarial) + len(self.difference)


@dataclass(frozen=True)
class ExampleStrip:
    """Examples of one run under one attack."""

    label: str
    run: str
    attack: str
    factor: int
    """The difference is multiplied by it, on middle grey."""
    stride: int
    """Every ``stride``-th pixel is shown; 1 is all."""
    examples: tuple[ExampleImage, ...]


def example_strips(groups: Sequence[RunGroup], key: str | None) -> list[ExampleStrip]:
    """Return examples of the first run of each group, under ``key`` if it has some."""
    candidates = (
        next(filter(None, (_run_strip(group, run, key) for run in group.members)), None)
        for group in groups
    )
    strips = list(islice(filter(None, candidates), MOST_RUNS))
    return [_limited(strip, MOST_CHARACTERS // len(strips)) for strip in strips]


def _limited(strip: ExampleStrip, characters: int) -> ExampleStrip:
    """Return a strip with as many of its images as fit, and at least one."""
    total, sizes = 0, []
    for example in strip.examples:
        total += example.size
        sizes.append(total)
    count = max(1, sum(size <= characters for size in sizes))
    return replace(strip, examples=strip.examples[:count])


def _run_strip(group: RunGroup, run: ReportRun, key: str | None) -> ExampleStrip | None:
    """Read the examples of a run; ``None`` if there are none, or they are not images."""
    attacked = [result for result in run.results.values() if result.threat]
    for result in sorted(attacked, key=lambda result: result.key_without_branch != key):
        path = run.run.examples(result.key)
        if path.exists():
            tensors = _read(path)
            shape = tensors["clean"].shape
            if len(shape) == 4 and shape[1] in (1, 3) and all(shape):
                return _strip(group.label, run.name, result, tensors)
    return None


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        tensors = parse_tensors(read_bytes(path, LARGEST))
        names = (*_NAMES, _SAMPLES) if _SAMPLES in tensors else _NAMES
        examples = {name: tensors[name] for name in names}
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except Exception as error:  # a type that numpy does not have, an offset beyond the end
        raise _damaged(path, f"{type(error).__name__}: {cut(str(error))}") from error
    images = [examples[name] for name in names[:2]]
    classes = [examples[name] for name in names[2:]]
    count = images[0].shape[:1]
    if images[0].shape != images[1].shape or any(c.shape != count for c in classes):
        raise _damaged(path, "its tensors differ in shape")
    kinds = [tensor.dtype.kind for tensor in images + classes]
    if kinds != [*"ff", *"i" * len(classes)]:
        raise _damaged(path, "its images must be floats, and its labels integers")
    return examples


def _damaged(path: Path, why: str) -> ValueError:
    """Return the error; images are written again only by an attack without verdicts."""
    run, file = path.parent.parent, f"{path.stem}.json"
    others = f"{run / 'results' / file} and {run / 'verdicts' / file}"
    return ValueError(
        f"{path} is damaged ({why}): remove it, and the page omits these images; to make "
        f"them again, remove {others} too, and evaluate again"
    )


def _strip(
    label: str, run: str, result: Result, tensors: dict[str, NDArray[Any]]
) -> ExampleStrip:
    low, high = result.threat.bounds if result.threat else (0.0, 1.0)
    clean, adversarial = (
        (tensors[name][:MOST_IMAGES].astype(np.float32).clip(low, high) - low)
        / (high - low)
        for name in ("clean", "adversarial")
    )
    factor = amplification(float(np.abs(adversarial - clean).max(initial=0.0)))
    difference = 0.5 + factor * (adversarial - clean)
    stride = ceil(max(clean.shape[2:]) / MOST_PIXELS)

    def url(images: NDArray[Any], index: int) -> str:
        return png_url(images[index, :, ::stride, ::stride])

    examples = tuple(
        ExampleImage(
            clean=url(clean, i),
            adversarial=url(adversarial, i),
            difference=url(difference, i),
            label=int(tensors["labels"][i]),
            clean_prediction=int(tensors["clean_predictions"][i]),
            adversarial_prediction=int(tensors["adversarial_predictions"][i]),
            sample=int(tensors[_SAMPLES][i]) if _SAMPLES in tensors else None,
        )
        for i in range(len(clean))
    )
    threat = f" {threat_label(result.threat)}" if result.threat else ""
    parts = (
        f"{result.condition}{threat}",
        branch_label(result.branch),
        unfinished_text(unfinished_runs([result])),
    )
    name = ", ".join(filter(None, parts))
    return ExampleStrip(label, run, name, factor, stride, examples)


def amplification(largest: float) -> int:
    """Return the largest round factor that keeps a change of ``largest`` inside the range.

    >>> amplification(0.03), amplification(0.7), amplification(0.0)
    (10, 1, 1)
    """
    return next((f for f in _FACTORS if 0 < f * largest <= 0.5), 1)


def png_url(image: NDArray[Any]) -> str:
    """Return an image (channels, height, width) in [0, 1] as a ``data:`` URL."""
    levels = np.rint(np.nan_to_num(image).clip(0, 1) * 255).astype(np.uint8)
    pixels = levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG")
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()
