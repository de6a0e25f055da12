"""How close are adversarial examples? Nearest ones by Carlini-Wagner (galloway2019)."""

from torch import Tensor, nn

from advnorm.attacks import CWSettings, cw_distance
from advnorm.diagnosis.common import (
    QUIET,
    count_passes,
    frozen_eval,
    image_bounds,
    predict_logits,
)
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import Count, NonNegative, question
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel
from advnorm.threat import Threat


@question("minimal_examples")
def minimal_examples(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    count: Count = 10,
    steps: Count = 1000,
    confidence: NonNegative = 4.0,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Nearest adversarial examples by Carlini-Wagner, in L2 (galloway2019 Fig. 13).

    For the first ``count`` correctly classified images. An example counts if the logit of
    any wrong class leads by ``confidence``. The paper takes up to 10,000 ``steps``.
    """
    with frozen_eval(model):
        correct = predict_logits(model, images).argmax(1) == labels
        rows = correct.nonzero().squeeze(1)[:count]
        if not len(rows):
            raise ValueError(
                "no image is classified correctly, so there is nothing to attack"
            )
        clean, search = images[rows], CWSettings(steps=steps, confidence=confidence)
        most = 2 * search.constants * steps  # with the turn for the nearest rival class
        counted = count_passes(model, progress, most, "passes at most")
        result = cw_distance(
            counted, clean, labels[rows], bounds=image_bounds(threat), search=search
        )
        softmax = predict_logits(model, result.adversarial).softmax(1)
    top, guesses = softmax.max(1)
    pictures = []
    for i, (label, distance) in enumerate(
        zip(labels[rows].tolist(), result.distance.tolist(), strict=True)
    ):
        name = f"{guesses[i]} ({top[i]:.0%}), L2 {distance:.2f}"
        name = name if result.success[i] else "none found"
        pictures += [picture(f"{label}", clean[i]), picture(name, result.adversarial[i])]
    distances = result.distance[result.success]
    return Diagnosis(
        question="minimal_examples",
        source="galloway2019 Fig. 13",
        reading="Each image is followed by the nearest one that is taken for another "
        "class, with its softmax and distance: invisible changes are the sign of a fragile "
        "network. If none was found within the steps, the image is repeated.",
        numbers={
            "mean L2 distance": float(distances.mean()) if len(distances) else float("inf"),
            "found": float(result.success.double().mean()),
            "mean confidence": float(top[result.success].mean()) if len(distances) else 0.0,
        },
        settings={"n": len(rows), "steps": steps, "confidence": confidence},
        panels=(
            Panel(kind="pictures", title="Images and changes", pictures=tuple(pictures)),
        ),
    )
