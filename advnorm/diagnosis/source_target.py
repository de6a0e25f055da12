"""What turns one class into another? A grid of all pairs (galloway2019)."""

import torch
from torch import Tensor, nn

from advnorm.attacks import transform
from advnorm.diagnosis.attack_space import NO_STOP, Space, attack_space
from advnorm.diagnosis.common import QUIET, frozen_eval, image_bounds
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import Count, Positive, ProbabilityMargin, question
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel
from advnorm.threat import Threat

MOST_CLASSES = 10


@question("source_target")
def source_target(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: Count = 100,
    step_size: Positive = 0.2,
    confidence: ProbabilityMargin = 0.9,
    space: Space = "pixels",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Images of each class changed into every other class (galloway2019 Fig. 15).

    The first image of each class, for at most ten classes, is changed by steps of fixed L2
    length (BIM without a norm ball) until the target has a softmax margin of
    ``confidence``. The final margin is that after all ``steps``, without a stop. With
    ``space=normalized`` the images are those behind the standardization, clipped to the
    same bounds; distances are given in pixels all the same.
    """
    classes = sorted(set(labels.tolist()))[:MOST_CLASSES]
    if len(classes) < 2:
        raise ValueError(
            f"source_target needs images of two classes or more, not of {classes} alone: "
            "take more samples"
        )
    sources = torch.stack([images[labels == label][0] for label in classes])
    targets = torch.tensor(classes, device=images.device)
    there = attack_space(model, space)
    rows, lengths, margins, finals = [], [], [], []
    with frozen_eval(model):
        scales = there.pixel_scale(sources)
        sources = there.standardize(sources)
        for count, (label, source) in enumerate(zip(classes, sources, strict=True), 1):
            others = targets != label
            result, final = (
                transform(
                    there.model,
                    source.expand(int(others.sum()), *source.shape),
                    targets[others],
                    bounds=image_bounds(threat),
                    steps=steps,
                    step_size=step_size,
                    confidence=stop,
                )
                for stop in (confidence, NO_STOP)
            )
            length = (result.images - source).flatten(1).norm(dim=1)
            lengths.append(length * scales[count - 1])
            margins.append(result.confidences)
            finals.append(final.confidences)
            pairs = zip(result.images, result.confidences.tolist(), strict=True)
            rows.append(dict(zip(targets[others].tolist(), pairs, strict=True)))
            progress.update(count, len(classes), f"from class {label}")
    return Diagnosis(
        question="source_target",
        source="galloway2019 Fig. 15",
        reading="A row is an image of one class, turned into the class of each column (the "
        "image itself on the diagonal), with the softmax margin reached: where the target "
        "can be seen, the network looks at what a person does.",
        numbers={
            "mean L2 distance": float(torch.cat(lengths).mean()),
            "mean margin": float(torch.cat(margins).mean()),
            "final margin": float(torch.cat(finals).mean()),
        },
        settings={
            "steps": steps,
            "step_size": step_size,
            "confidence": confidence,
            "space": space,
        },
        panels=tuple(
            Panel(
                kind="pictures",
                title=f"From class {label}",
                pictures=tuple(
                    picture(f"{target} ({row[target][1]:.0%})", row[target][0])
                    if target in row
                    else picture(f"{label} (as it is)", source)
                    for target in classes
                ),
            )
            for label, source, row in zip(classes, sources, rows, strict=True)
        ),
    )
