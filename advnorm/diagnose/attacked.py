r"""How far does an attack raise the loss? (galloway2019 Tables 13 and 14)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.attacks import bim
from advnorm.diagnose.registry import QUESTIONS
from advnorm.norms import mode
from advnorm.progress import Progress, Quiet
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

BATCH = 500
"""Samples attacked together."""


@QUESTIONS.register("attacked_loss")
def attacked_loss(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: int = 1,
    step_size: float | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Mean loss of clean images and of the attacked ones (galloway2019 Tables 13, 14).

    The attack climbs from the clean image: FGSM for one step, the optimal one on a linear
    model, else BIM with ``step_size``, by default 2.5 eps / steps.
    """
    if threat is None:
        raise ValueError("attacked_loss needs a threat, such as Linf(0.1)")
    progress, seen = progress or Quiet(), list[tuple[Tensor, Tensor]]()
    size = step_size or (threat.eps if steps == 1 else 2.5 * threat.eps / steps)
    with mode(model, "running"):
        for x, y in _batches(images, labels):
            found = bim(model, x, y, threat, steps=steps, step_size=size)
            with torch.no_grad():
                losses = [
                    F.cross_entropy(model(i), y, reduction="none") for i in (x, found)
                ]
            seen.append((losses[0], losses[1]))
            done = sum(len(clean) for clean, _ in seen)
            progress.update(done, len(images), f"loss {float(losses[1].mean()):.3g}")
    clean, attacked = (
        float(torch.cat(part).double().mean()) for part in zip(*seen, strict=True)
    )
    return Diagnosis(
        question="attacked_loss",
        source="galloway2019 Tables 13, 14",
        reading="The higher the attacked bar stands over the clean one, the more damage "
        "the attack does.",
        numbers={"clean": clean, "attacked": attacked},
        settings={"steps": steps, "eps": threat.eps, "n": len(images)},
        panels=(
            Panel(
                kind="bars",
                title="Mean loss",
                x="0 clean, 1 attacked",
                y="cross-entropy",
                series=(Series(name="loss", x=(0.0, 1.0), y=(clean, attacked)),),
            ),
        ),
    )


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="none")


def _batches(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(torch.split(images, BATCH), torch.split(labels, BATCH), strict=True)
