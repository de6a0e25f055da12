"""Run an exported network before it is written: compare logits and stored verdicts."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor

from advnorm.files import read_bytes
from advnorm.records import Result
from advnorm.runs.export.failing_layer import first_line
from advnorm.runs.export.source import ExportSource

Predict = Callable[[Tensor], Tensor]
TOLERANCE = 1e-4
"""The largest difference of logits, relative to the largest logit where that is above 1."""
BATCHES = (1, 7)
"""Batch sizes that an exported network must take, besides that of all samples."""
BATCH = 250
"""Images at a time, where there are many."""


class ExportCheckError(ValueError):
    """An exported network does not compute what the model does."""


class CheckedExport(NamedTuple):
    """The comparison of an exported network with the model."""

    difference: float
    samples: int
    verdicts: int
    """Stored predictions that it repeats: on clean test images and on examples."""
    ties: int
    """Predictions that differ where two classes are equal up to the tolerance."""

    def __str__(self) -> str:
        text = (
            f"largest difference of logits {self.difference:.1e} on {self.samples} images, "
            f"batch sizes 1, 7 and {self.samples}"
        )
        if self.verdicts:
            text += f"; {self.verdicts} stored predictions repeated"
        return f"{text}, {self.ties} ties apart" if self.ties else text


def check_export(source: ExportSource, predict: Predict) -> CheckedExport:
    """Compare an exported network with the model and with the stored verdicts of the run.

    Raises:
        ExportCheckError: They differ by more than rounding.
    """
    difference, tolerance = _compare_logits(source, predict)
    count, ties = 0, 0
    for where, images, expected in _stored_predictions(source):
        logits = _run(predict, images)
        wrong = logits.argmax(1) != expected
        margins = logits.amax(1) - logits.gather(1, expected[:, None])[:, 0]
        if (margins[wrong] > 2 * tolerance).any():
            raise ExportCheckError(
                f"the exported network does not repeat the stored predictions of {where} "
                f"({int(wrong.sum())} of {len(wrong)} differ): nothing was written"
            )
        count, ties = count + len(expected), ties + int(wrong.sum())
    return CheckedExport(difference, len(source.images), count, ties)


def _compare_logits(source: ExportSource, predict: Predict) -> tuple[float, float]:
    """Return the largest difference of logits, and what is allowed."""
    images = source.images
    worst = 0.0
    reference = source.logits(images)
    tolerance = TOLERANCE * max(1.0, float(reference.abs().max()))
    for size in (*BATCHES, len(images)):
        rows = images[torch.arange(size) % len(images)]
        expected, logits = source.logits(rows), _run(predict, rows)
        if logits.shape != expected.shape:
            raise ExportCheckError(
                f"the exported network returns {tuple(logits.shape)} for a batch of {size} "
                f"and the model {tuple(expected.shape)}: nothing was written"
            )
        difference = float((logits - expected).abs().max())
        worst = max(worst, difference)
        if not difference <= tolerance:  # also where one of them is not a number
            raise ExportCheckError(
                f"the exported network's logits differ by {difference:.1e} from the "
                f"model's for a batch of {size} (at most {tolerance:.1e}): nothing was "
                "written"
            )
    return worst, tolerance


def _run(predict: Predict, images: Tensor) -> Tensor:
    """Return the logits of an exported network; it must take a batch of any size."""
    try:
        return predict(images)
    except Exception as error:
        raise ExportCheckError(
            f"the exported network fails on a batch of {len(images)}: nothing was written "
            f"({first_line(error)})"
        ) from error


def _stored_predictions(source: ExportSource) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield images and what the run's results say that the model predicts for them."""
    results = source.run.results() if source.run else []
    for result in results:
        if _concerns(source, result):
            clean = result.condition == "clean"
            stored = _clean_predictions if clean else _example_predictions
            for images, predictions in stored(source, result):
                yield result.key, images, predictions


def _clean_predictions(
    source: ExportSource, result: Result
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the clean test images and their predictions, if the images are the same."""
    assert source.run is not None and source.data is not None
    verdicts = source.run.verdicts(result.key).first(result.accuracy.n)
    predictions = torch.tensor(verdicts.predictions, dtype=torch.int64)
    if source.data.test.samples[: len(predictions)].tolist() != [*verdicts.samples]:
        return
    parts = (predictions[at : at + BATCH] for at in range(0, len(predictions), BATCH))
    yield from zip(source.test_batches(len(predictions), BATCH), parts, strict=True)


def _example_predictions(
    source: ExportSource, result: Result
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the example images that the run keeps, before and after an attack."""
    assert source.run is not None
    path = source.run.examples(result.key)
    if path.exists():
        kept = parse_tensors(read_bytes(path))
        for kind in ("clean", "adversarial"):
            images = kept[kind].to(source.images.dtype)
            if len(images):
                yield images, kept[f"{kind}_predictions"]


def _concerns(source: ExportSource, result: Result) -> bool:
    """Tell whether a result is of the exported weights and branch, on the run's data."""
    return (
        result.weights == source.weights
        and result.branch == source.branch
        and not result.other
        and result.statistics == "running"
    )
