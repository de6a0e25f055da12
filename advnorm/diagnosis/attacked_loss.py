r"""How much does an attack raise the loss? FGSM and BIM (galloway2019, section 5)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.diagnosis.common import QUIET, frozen_eval, predict_logits
from advnorm.diagnosis.registry import Count, Positive, question
from advnorm.diagnosis.small_networks import attack_with_bim
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


@question("attacked_loss")
def attacked_loss(  # noqa: PLR0913 (the options of several tables)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    eps: Positive | None = None,
    steps: Count = 1,
    step_size: Positive | None = None,
    precision: str = "float32",
    statistics: Mode = "running",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Loss and accuracy, clean and under FGSM or BIM (galloway2019 Table 14).

    The attack starts at the clean image; its radius is that of the threat, or ``eps``. One
    step is FGSM, which is optimal on a linear model; more steps are BIM with ``step_size``,
    by default 2.5 eps / steps. With ``precision=bfloat16`` the attack runs under autocast,
    which is faster on large networks; the adversarial images and the logits reported stay
    in full precision. An image counts as correct under attack only if it was correct
    before, as in an evaluation. With ``statistics=batch`` all images are one batch, whose
    statistics normalize it, clean and attacked, and through which the attack's gradient
    passes (galloway2019, Fig. 10 b).
    """
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"precision is float32 or bfloat16, not {precision!r}")
    autocast = torch.autocast(
        images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"
    )
    threat = threat if eps is None else threat.with_eps(eps)
    size = step_size or (threat.eps if steps == 1 else 2.5 * threat.eps / steps)
    whole = len(images) if statistics == "batch" else None
    with frozen_eval(model, statistics):
        with autocast:
            adversarial = attack_with_bim(
                model,
                images,
                labels,
                threat,
                steps=steps,
                step_size=size,
                batch_size=whole,
                progress=progress,
            )
        logits = [
            predict_logits(model, x, batch_size=whole).double()
            for x in (images, adversarial)
        ]
    clean, attacked = (float(F.cross_entropy(z, labels)) for z in logits)
    before, after = (z.argmax(1) == labels for z in logits)
    return Diagnosis(
        question="attacked_loss",
        source="galloway2019 Tables 6, 7, 13, 14",
        reading="The higher the attacked bar stands over the clean one, the more damage "
        "the attack does.",
        numbers={
            "clean": clean,
            "attacked": attacked,
            "clean accuracy": 100 * float(before.double().mean()),
            "attacked accuracy": 100 * float((before & after).double().mean()),
        },
        settings={
            "steps": steps,
            "step_size": size,
            "eps": threat.eps,
            "precision": precision,
            "statistics": statistics,
            "n": len(images),
        },
        panels=(
            Panel(
                kind="bars",
                title="Mean loss",
                x="images",
                names=("clean", "attacked"),
                y="mean cross-entropy",
                series=(Series(name="loss", x=(0.0, 1.0), y=(clean, attacked)),),
            ),
        ),
    )
