"""Runs cells over samples: batch by batch, resumable, the same verdicts in any batching."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluate.cells import Cell
from advnorm.evaluate.checks import check_images, check_labels, check_logits
from advnorm.progress import Progress, Quiet
from advnorm.records import Verdicts
from advnorm.scoped import evaluating, frozen
from advnorm.threat import Bounds


class Examples(NamedTuple):
    """A few images before and after, for people to look at."""

    clean: Tensor
    adversarial: Tensor
    labels: Tensor
    clean_predictions: Tensor
    adversarial_predictions: Tensor


class Judgement(NamedTuple):
    """What a cell found."""

    verdicts: Verdicts
    examples: Examples | None


def judge(
    model: nn.Module,
    batches: Iterable[Batch],
    cell: Cell,
    *,
    total: int,
    seed: int = 0,
    done: Verdicts | None = None,
    save: Callable[[Verdicts], None] | None = None,
    progress: Progress | None = None,
) -> Judgement:
    """Judge every sample by ``cell``; ``done`` are the verdicts to go on from.

    The model is put in evaluation with frozen parameters for the time of the search, and
    put back. ``save`` is called with all verdicts so far after each batch.
    """
    verdicts, examples = done or Verdicts(), None
    progress = progress or Quiet()
    with evaluating(model), frozen(model):
        for batch in batches:
            draws = Draws.of(seed, batch.samples).stream(cell.name)
            images = batch.images.to(_dtype(model))
            found = cell.judge(model, images, batch.labels, draws)
            verdicts = _extend(verdicts, batch, found.predictions, found.robust)
            if examples is None:
                examples = _examples(model, images, batch.labels, found.images)
            if save:
                save(verdicts)
            shown = verdicts.accuracy()
            progress.update(shown.n, total, f"{cell.key} {shown.rate:.1%}")
    return Judgement(verdicts, examples)


def check(model: nn.Module, batch: Batch, *, bounds: Bounds) -> int:
    """Refuse a model and images that do not fit together; return the number of classes."""
    check_images(batch.images, bounds)
    with evaluating(model), torch.no_grad():
        logits = model(batch.images.to(_dtype(model)))
    check_logits(logits, count=len(batch.images))
    classes = int(logits.shape[1])
    check_labels(batch.labels, count=len(batch.images), classes=classes)
    return classes


def _dtype(model: nn.Module) -> torch.dtype:
    """Return float64 for a model in double precision, else float32."""
    kinds = {p.dtype for p in model.parameters()}
    return torch.float64 if torch.float64 in kinds else torch.float32


def _extend(done: Verdicts, batch: Batch, predictions: Tensor, robust: Tensor) -> Verdicts:
    return Verdicts(
        fingerprint=done.fingerprint,
        samples=(*done.samples, *batch.samples.tolist()),
        labels=(*done.labels, *batch.labels.tolist()),
        predictions=(*done.predictions, *predictions.tolist()),
        robust=(*done.robust, *robust.tolist()),
    )


def _examples(model: nn.Module, clean: Tensor, labels: Tensor, seen: Tensor) -> Examples:
    """Keep images that were right before; what is shown is what was judged."""
    with torch.no_grad():
        before, after = model(clean).argmax(1), model(seen).argmax(1)
    rows = (before == labels).nonzero().squeeze(1)
    return Examples(*(t[rows].cpu() for t in (clean, seen, labels, before, after)))
