"""Is the right class among the first k? For sets of many classes (galloway2019 Table 5)."""

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import frozen_eval, predict_logits, require_threat
from advnorm.diagnosis.option_ranges import Count, Factor
from advnorm.diagnosis.registry import question
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
    threat: Threat | None = None,
    k: Count = 5,
    sigma: Factor = 0.05,
    steps: Count = 20,
    progress: Progress | None = None,
) -> Diagnosis:
    """Top-k accuracy, clean, noisy and attacked, in percent (galloway2019 Table 5).

    Gaussian noise of deviation ``sigma``, not clipped; BIM of ``steps`` steps of
    2 eps / steps, which climbs the cross-entropy, as the paper's does, whatever ``k`` is.
    """
    threat = require_threat(threat, "top_k")
    size = 2 * threat.eps / steps
    draws = Draws.of(0, torch.arange(len(images), device=images.device)).stream("noise")
    noise = sigma * draws.normal(*images.shape[1:], dtype=images.dtype)
    with frozen_eval(model):
        moved = attack_with_bim(
            model, images, labels, threat, steps=steps, step_size=size, progress=progress
        )
        seen = {"clean": images, "noise": images + noise, "attacked": moved}
        numbers = {
            name: 100 * top_k_accuracy(predict_logits(model, part), labels, k)
            for name, part in seen.items()
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
    """Return the share of rows whose label is among the k largest logits.

    >>> logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    >>> top_k_accuracy(logits, torch.tensor([1, 2]), 2)
    0.5
    """
    classes = logits.shape[1]
    if not 1 <= k < classes:
        raise ValueError(f"top_k of {classes} classes takes a k from 1 to {classes - 1}")
    first = logits.topk(k, dim=1).indices == labels[:, None]
    return float(first.any(1).double().mean())
