"""Anybody's model in three lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn

from advnorm.data import Batch
from advnorm.evaluate.cells import cells
from advnorm.evaluate.checks import check_images, check_labels
from advnorm.evaluate.engine import check, judge
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import THREATS, Bounds


@dataclass(frozen=True)
class Evaluation:
    """Results by key, each with its verdicts a sample."""

    results: tuple[Result, ...]
    verdicts: dict[str, Verdicts]

    def __str__(self) -> str:
        width = max(len(result.key) for result in self.results)
        return "\n".join(f"{r.key:<{width}}  {r.accuracy}" for r in self.results)


def evaluate(  # noqa: PLR0913 (one flat call, for newcomers)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float | Sequence[float],
    norm: str = "linf",
    attacks: Sequence[str] = ("clean", "fgsm", "pgd-50"),
    bounds: Bounds = (0.0, 1.0),
    batch_size: int = 250,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Attack ``model`` and return its accuracies, with intervals and verdicts a sample.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> [r.key for r in evaluate(model, images, labels, eps=8 / 255).results]
    ['clean', 'fgsm_linf_0.03137', 'pgd-50_linf_0.03137']

    Args:
        model: Maps images in ``bounds`` to logits; standardization is inside the model.
        images: Floats in ``bounds``, shape ``(n, ...)``.
        labels: Class indices, shape ``(n,)``.
        eps: The radius, or a list of radii for the accuracy curve.
        norm: ``"linf"`` or ``"l2"``.
        attacks: Names of cells, such as ``"pgd-50x5"`` (steps x restarts).
        bounds: The smallest and largest value of a valid image.
        batch_size: Samples attacked together; no verdict depends on it.
        seed: Decides every random start.
        progress: Where to report; by default nowhere.
    """
    if norm not in THREATS:
        raise ValueError(f"no norm {norm!r}; there are: {', '.join(THREATS)}")
    radii = [eps] if isinstance(eps, int | float) else list(eps)
    threats = [THREATS[norm](radius, bounds) for radius in radii]
    columns = cells(attacks, threats, bounds)
    _check(model, images, labels, bounds)
    results, verdicts = [], {}
    for cell in columns:
        start = perf_counter()
        batches = _batches(images, labels, batch_size, _device(model))
        found = judge(model, batches, cell, total=len(images), seed=seed, progress=progress)
        verdicts[cell.key] = found.verdicts
        results.append(
            Result(
                attack=cell.name,
                settings=cell.settings,
                threat=cell.threat_record,
                accuracy=found.verdicts.accuracy(),
                data="given",
                weights="given",
                seed=seed,
                seconds=perf_counter() - start,
            )
        )
    return Evaluation(tuple(results), verdicts)


def _check(model: nn.Module, images: Tensor, labels: Tensor, bounds: Bounds) -> None:
    """Look at all images and labels, and at the logits of a few."""
    check_images(images, bounds)
    few = next(_batches(images[:8], labels[:8], 8, _device(model)))
    classes = check(model, few, bounds=bounds)
    check_labels(labels, count=len(images), classes=classes)


def _batches(
    images: Tensor, labels: Tensor, size: int, device: torch.device
) -> Iterator[Batch]:
    for start in range(0, len(images), size):
        rows = slice(start, start + size)
        samples = torch.arange(len(images), device=device)[rows]
        yield Batch(images[rows].to(device), labels[rows].to(device), samples)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
