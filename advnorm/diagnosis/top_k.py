"""Is the true class among the k largest logits? (galloway2019 Table 5)."""

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, frozen_eval, predict_logits
from advnorm.diagnosis.registry import Count, NonNegative, question
from advnorm.diagnosis.small_networks import attack_with_bim
from advnorm.draws import Draws
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


@question("top_k")
def top_k(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    k: Count = 5,
    sigma: NonNegative = 0.05,
    steps: Count = 20,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Top-k accuracy in percent: clean, noise and BIM (galloway2019 Table 5).

    The noise is Gaussian of standard deviation ``sigma``, not clipped. BIM takes ``steps``
    steps of 2 eps / steps and maximizes the cross-entropy for every ``k``, as the paper's.
    """
    size = 2 * threat.eps / steps
    draws = Draws.of(0, torch.arange(len(images), device=images.device)).stream("noise")
    noise = sigma * draws.normal(*images.shape[1:], dtype=images.dtype)
    with frozen_eval(model):
        attacked = attack_with_bim(
            model, images, labels, threat, steps=steps, step_size=size, progress=progress
        )
        shown = {"clean": images, "noise": images + noise, "attacked": attacked}
        numbers = {
            name: 100 * top_k_accuracy(predict_logits(model, x), labels, k)
            for name, x in shown.items()
        }
    return Diagnosis(
        question="top_k",
        source="galloway2019 Table 5",
        reading=f"The share of images whose class is among the {k} likeliest.",
        numbers=numbers,
        settings={"n": len(images), "k": k, "sigma": sigma, "steps": steps},
        panels=(
            Panel(
                kind="bars",
                title=f"Top-{k} accuracy",
                x="images",
                names=tuple(numbers),
                y="percent",
                series=(
                    Series(name=f"top {k}", x=(0.0, 1.0, 2.0), y=tuple(numbers.values())),
                ),
            ),
        ),
    )


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> float:
    """Return the fraction of rows whose label is among the k largest logits.

    >>> logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    >>> top_k_accuracy(logits, torch.tensor([1, 2]), 2)
    0.5
    """
    classes = logits.shape[1]
    if not 1 <= k < classes:
        raise ValueError(
            f"k must be from 1 to {classes - 1} for {classes} classes, not {k}"
        )
    hits = logits.topk(k, dim=1).indices == labels[:, None]
    return float(hits.any(1).double().mean())
