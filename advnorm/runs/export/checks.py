"""An exported network is run before it is written: logits, and the run's verdicts."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor

from advnorm.files import read_bytes
from advnorm.records import Result
from advnorm.runs.export.source import ExportSource

Predict = Callable[[Tensor], Tensor]
TOLERANCE = 1e-4
"""The largest difference of logits, relative to the largest logit where that is above 1."""
BATCHES = (1, 7)
"""Batch sizes that an exported network must take, besides that of all samples."""


class ExportCheckError(ValueError):
    """An exported network does not compute what the model does."""


class CheckedExport(NamedTuple):
    """What an exported network was compared with."""

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
        logits = predict(images)
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
        expected, logits = source.logits(rows), predict(rows)
        if logits.shape != expected.shape:
            raise ExportCheckError(
                f"the exported network returns {tuple(logits.shape)} for a batch of {size}, "
                f"and the model {tuple(expected.shape)}: nothing was written"
            )
        worst = max(worst, float((logits - expected).abs().max()))
        if not worst <= tolerance:  # also where one of them is not a number
            raise ExportCheckError(
                f"the exported network's logits differ by {worst:.1e} from the model's for "
                f"a batch of {size} (at most {tolerance:.1e}): nothing was written"
            )
    return worst, tolerance


def _stored_predictions(source: ExportSource) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield images and what the run's results say that the model predicts for them."""
    if source.run is None or source.data is None:
        return
    for result in source.run.results():
        if not _concerns(source, result):
            continue
        if result.condition == "clean":
            verdicts = source.run.verdicts(result.key).first(result.accuracy.n)
            expected = torch.tensor(verdicts.predictions)
            if source.data.test.samples[: len(expected)].tolist() == [*verdicts.samples]:
                batches = source.test_batches(len(expected))
                for images, labels in zip(batches, expected.split(250), strict=True):
                    yield result.key, images, labels
        elif source.run.examples(result.key).exists():
            kept = parse_tensors(read_bytes(source.run.examples(result.key)))
            for kind, predictions in (
                ("clean", "clean_predictions"),
                ("adversarial", "adversarial_predictions"),
            ):
                images = kept[kind].to(source.images.dtype)
                yield f"{result.key}, {kind} examples", images, kept[predictions]


def _concerns(source: ExportSource, result: Result) -> bool:
    """Tell whether a result is of the exported weights and branch, on the run's data."""
    return (
        result.weights == source.weights
        and result.branch == source.branch
        and not result.other
        and result.statistics == "running"
    )
