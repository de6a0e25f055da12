r"""How far an attack raises the loss, and what it leaves right (galloway2019, sec. 5)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.diagnosis.common import frozen_eval, predict_logits, require_threat
from advnorm.diagnosis.option_ranges import Count, Positive
from advnorm.diagnosis.registry import question
from advnorm.diagnosis.small_networks import attack_with_bim
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


@question("attacked_loss")
def attacked_loss(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: Count = 1,
    step_size: Positive | None = None,
    precision: str = "float32",
    progress: Progress | None = None,
) -> Diagnosis:
    """Loss and accuracy of clean images and of the attacked ones (galloway2019 Table 14).

    The attack climbs from the clean image: FGSM for one step, the optimal one on a linear
    model, else BIM with ``step_size``, by default 2.5 eps / steps. With a ``precision`` of
    ``bfloat16`` its products are of that, which is faster on large networks; its images,
    and what the model makes of them, are not. An image that is right is so before and
    after, as in an evaluation.
    """
    threat = require_threat(threat, "attacked_loss")
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision is float32 or bfloat16, not {precision!r}")
    half = torch.autocast(
        images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"
    )
    size = step_size or (threat.eps if steps == 1 else 2.5 * threat.eps / steps)
    with frozen_eval(model):
        with half:
            moved = attack_with_bim(
                model,
                images,
                labels,
                threat,
                steps=steps,
                step_size=size,
                progress=progress,
            )
        logits = [predict_logits(model, x).double() for x in (images, moved)]
    clean, raised = (float(F.cross_entropy(each, labels)) for each in logits)
    before, after = (each.argmax(1) == labels for each in logits)
    return Diagnosis(
        question="attacked_loss",
        source="galloway2019 Tables 6, 7, 13, 14",
        reading="The higher the attacked bar stands over the clean one, the more damage "
        "the attack does.",
        numbers={
            "clean": clean,
            "attacked": raised,
            "clean accuracy": 100 * float(before.double().mean()),
            "attacked accuracy": 100 * float((before & after).double().mean()),
        },
        settings={
            "steps": steps,
            "step_size": size,
            "eps": threat.eps,
            "precision": precision,
            "n": len(images),
        },
        panels=(
            Panel(
                kind="bars",
                title="Mean loss",
                x="images",
                names=("clean", "attacked"),
                y="mean cross-entropy",
                series=(Series(name="loss", x=(0.0, 1.0), y=(clean, raised)),),
            ),
        ),
    )
