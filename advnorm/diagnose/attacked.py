r"""How far does an attack raise the loss? (galloway2019 Tables 13 and 14)."""

from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.diagnose.registry import QUESTIONS
from advnorm.diagnose.rest import logits_of, needed, resting
from advnorm.diagnose.small import attacked
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


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
    threat = needed(threat, "attacked_loss")
    size = step_size or (threat.eps if steps == 1 else 2.5 * threat.eps / steps)
    with resting(model):
        moved = attacked(
            model, images, labels, threat, steps=steps, step_size=size, progress=progress
        )
        clean, raised = (
            float(F.cross_entropy(logits_of(model, x).double(), labels))
            for x in (images, moved)
        )
    return Diagnosis(
        question="attacked_loss",
        source="galloway2019 Tables 13, 14",
        reading="The higher the attacked bar stands over the clean one, the more damage "
        "the attack does.",
        numbers={"clean": clean, "attacked": raised},
        settings={"steps": steps, "eps": threat.eps, "n": len(images)},
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
