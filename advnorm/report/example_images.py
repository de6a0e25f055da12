"""Example images as ``data:`` PNGs: clean, adversarial, and what the attack changed."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load as parse_tensors

from advnorm.files import read_bytes
from advnorm.records import Result
from advnorm.report.completion_marks import unfinished, unfinished_text
from advnorm.report.groups import LoadedRun, RunGroup
from advnorm.report.rows import branch_label, threat_label, without_branch
from advnorm.text import cut

MOST_RUNS = 8
"""Runs whose images are shown."""
MOST_IMAGES = 8
"""Images a run."""
MOST_PIXELS = 128
"""Larger images are subsampled to this side."""
LARGEST = 1 << 28
"""Bytes of a file of examples."""
_FACTORS = (100, 50, 20, 10, 5, 2, 1)
_NAMES = ("clean", "adversarial", "labels", "clean_predictions", "adversarial_predictions")


@dataclass(frozen=True)
class ExampleImage:
    """One image: three PNGs, and what the model said."""

    clean: str
    adversarial: str
    difference: str
    label: int
    clean_prediction: int
    adversarial_prediction: int


@dataclass(frozen=True)
class ExampleStrip:
    """Examples of one run under one attack."""

    label: str
    run: str
    attack: str
    factor: int
    """The difference is drawn this many times as large, around middle grey."""
    stride: int
    """Every how many-th pixel is shown; 1 is all."""
    examples: tuple[ExampleImage, ...]


def strips(groups: Sequence[RunGroup], key: str | None) -> list[ExampleStrip]:
    """Return examples of the first runs of the groups, under ``key`` where it has some."""
    found = []
    for group in groups:
        strip = next(
            filter(None, (_of_run(group, run, key) for run in group.members)), None
        )
        if strip:
            found.append(strip)
        if len(found) == MOST_RUNS:
            break
    return found


def _of_run(group: RunGroup, run: LoadedRun, key: str | None) -> ExampleStrip | None:
    """Read the run's examples; ``None`` where there are none that are images."""
    attacked = [name for name, result in run.results.items() if result.threat]
    for name in sorted(attacked, key=lambda name: without_branch(name) != key):
        path = run.run.examples(name)
        if path.exists():
            tensors = _read(path)
            shape = tensors["clean"].shape
            if len(shape) == 4 and shape[1] in (1, 3) and all(shape):
                return _strip(group.label, run.name, run.results[name], tensors)
    return None


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        tensors = parse_tensors(read_bytes(path, LARGEST))
        found = {name: tensors[name] for name in _NAMES}
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except Exception as error:  # a type that numpy does not have, an offset beyond the end
        raise _damaged(path, f"{type(error).__name__}: {cut(str(error))}") from error
    images, numbers = [found[name] for name in _NAMES[:2]], _NAMES[2:]
    count = images[0].shape[:1]
    if images[0].shape != images[1].shape or any(found[n].shape != count for n in numbers):
        raise _damaged(path, "its tensors differ in shape")
    kinds = [image.dtype.kind for image in images] + [found[n].dtype.kind for n in numbers]
    if kinds != [*"ff", *"iii"]:
        raise _damaged(path, "its images are no floats, or its labels no whole numbers")
    return found


def _damaged(path: Path, why: str) -> ValueError:
    """Say what to do: only what has no verdicts is attacked again, and leaves images."""
    run, file = path.parent.parent, f"{path.stem}.json"
    others = f"{run / 'results' / file} and {run / 'verdicts' / file}"
    return ValueError(
        f"{path} is damaged ({why}): remove it, and the page has no images of it; to have "
        f"them again, remove {others} too, and evaluate as before"
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

    def shown(images: NDArray[Any], index: int) -> str:
        return png(images[index, :, ::stride, ::stride])

    examples = tuple(
        ExampleImage(
            clean=shown(clean, i),
            adversarial=shown(adversarial, i),
            difference=shown(difference, i),
            label=int(tensors["labels"][i]),
            clean_prediction=int(tensors["clean_predictions"][i]),
            adversarial_prediction=int(tensors["adversarial_predictions"][i]),
        )
        for i in range(len(clean))
    )
    threat = f" {threat_label(result.threat)}" if result.threat else ""
    parts = (
        f"{result.condition}{threat}",
        branch_label(result.branch),
        unfinished_text(unfinished([result])),
    )
    named = filter(None, parts)
    return ExampleStrip(label, run, ", ".join(named), factor, stride, examples)


def amplification(largest: float) -> int:
    """Return the largest round factor that keeps a change of ``largest`` inside the range.

    >>> amplification(0.03), amplification(0.7), amplification(0.0)
    (10, 1, 1)
    """
    return next((f for f in _FACTORS if 0 < f * largest <= 0.5), 1)


def png(image: NDArray[Any]) -> str:
    """Return an image (channels, height, width) in [0, 1] as a ``data:`` address."""
    levels = np.rint(np.nan_to_num(image).clip(0, 1) * 255).astype(np.uint8)
    pixels = levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)
    file = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, format="PNG")
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()
