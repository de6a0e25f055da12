"""The path of PGD, step by step."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks import LogitsFn, pgd
from advnorm.draws import Draws
from advnorm.threat import Threat

STEPS = 50


class PGDPath(NamedTuple):
    """Losses along PGD: a row per step and one for the result, a column per sample."""

    losses: Tensor
    fooled: Tensor
    images: Tensor


def trace_pgd(
    logits_fn: LogitsFn, clean: Tensor, labels: Tensor, threat: Threat, draws: Draws
) -> PGDPath:
    """Run PGD on a batch and keep the logits of each iterate; the last are a fresh pass."""
    seen: list[Tensor] = []

    def recorded(images: Tensor) -> Tensor:
        logits = logits_fn(images)
        seen.append(logits.detach())
        return logits

    size = 2.5 * threat.eps / STEPS
    images = pgd(recorded, clean, labels, threat, steps=STEPS, step_size=size, draws=draws)
    with torch.no_grad():
        logits = torch.stack([*seen, logits_fn(images)])
    losses = F.cross_entropy(
        logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none"
    )
    return PGDPath(losses.view(len(logits), -1), logits.argmax(2) != labels, images)


def join(paths: list[PGDPath]) -> PGDPath:
    """Put the batches side by side."""
    losses, fooled, images = zip(*paths, strict=True)
    return PGDPath(torch.cat(losses, 1), torch.cat(fooled, 1), torch.cat(images))
