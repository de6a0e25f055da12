"""What does the network accept as each class? Images made from noise (galloway2019)."""

import torch
from torch import Tensor, nn

from advnorm.attacks import fooling
from advnorm.diagnosis.attack_space import NO_STOP, Space, attack_space
from advnorm.diagnosis.common import (
    QUIET,
    count_passes,
    frozen_eval,
    image_bounds,
    predict_logits,
)
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import Count, Positive, ProbabilityMargin, question
from advnorm.draws import Draws
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel
from advnorm.threat import Threat


@question("fooling_images")
def fooling_images(  # noqa: PLR0913 (the options of the paper)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: Count = 100,
    step_size: Positive = 0.2,
    confidence: ProbabilityMargin = 0.9,
    seed: int = 0,
    space: Space = "pixels",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Noise changed until it is classified as each class (galloway2019 Figs. 12, 14).

    White noise is changed by steps of fixed L2 length, without any norm ball, until the
    class is predicted with a softmax margin of ``confidence`` or ``steps`` are done. The
    final margin is that after all ``steps``, without a stop. With ``space=normalized`` the
    images are those behind the standardization, in the same bounds.
    """
    network = attack_space(model, space).model
    with frozen_eval(model):
        targets = torch.arange(
            predict_logits(model, images[:2]).shape[1], device=images.device
        )
        forward = count_passes(
            lambda x: network(x.to(images.dtype)), progress, 2 * (steps + 1), "steps"
        )
        result, final = (
            fooling(
                forward,
                targets,
                shape=tuple(images.shape[1:]),
                bounds=image_bounds(threat),
                steps=steps,
                step_size=step_size,
                confidence=stop,
                draws=Draws.of(seed, targets),
            )
            for stop in (confidence, NO_STOP)
        )
    pictures = tuple(
        picture(f"{target} ({margin:.0%})", image)
        for target, margin, image in zip(
            targets.tolist(), result.confidences.tolist(), result.images, strict=True
        )
    )
    return Diagnosis(
        question="fooling_images",
        source="galloway2019 Figs. 12, 14",
        reading="Each picture started as noise and is taken for the class below it, with "
        "the softmax margin in brackets: a robust network asks for what a person would "
        "draw, a fragile one is sure of noise.",
        numbers={
            "mean margin": float(result.confidences.mean()),
            "finished": float((result.confidences >= confidence).double().mean()),
            "mean steps": float(result.steps.double().mean()),
            "final margin": float(final.confidences.mean()),
        },
        settings={
            "steps": steps,
            "step_size": step_size,
            "confidence": confidence,
            "space": space,
        },
        panels=(Panel(kind="pictures", title="Fooling images", pictures=pictures),),
    )
