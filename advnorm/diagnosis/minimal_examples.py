"""How little must change? The nearest adversarial examples of CW (galloway2019)."""

from torch import Tensor, nn

from advnorm.attacks import Search, cw_distance
from advnorm.diagnosis.common import (
    count_passes,
    frozen_eval,
    image_bounds,
    predict_logits,
)
from advnorm.diagnosis.option_ranges import Count, Factor
from advnorm.diagnosis.pictures import picture
from advnorm.diagnosis.registry import question
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
    confidence: Factor = 4.0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Nearest adversarial examples (CW, L2) with confidences (galloway2019 Fig. 13).

    Of the first ``count`` images that are classified right; any wrong class whose logit
    leads by ``confidence`` will do. The paper takes up to 10,000 ``steps``.
    """
    with frozen_eval(model):
        right = predict_logits(model, images).argmax(1) == labels
        rows = right.nonzero().squeeze(1)[:count]
        if not len(rows):
            raise ValueError("no image is classified right: there is nothing to change")
        clean, search = images[rows], Search(steps=steps, confidence=confidence)
        most = 2 * search.constants * steps  # with the nearest rival's turn
        passing = count_passes(model, progress, most, "passes at most")
        found = cw_distance(
            passing, clean, labels[rows], bounds=image_bounds(threat), search=search
        )
        softmax = predict_logits(model, found.adversarial).softmax(1)
    top, guesses = softmax.max(1)
    pictures = []
    for i, (label, distance) in enumerate(
        zip(labels[rows].tolist(), found.distance.tolist(), strict=True)
    ):
        name = f"{guesses[i]} ({top[i]:.0%}), L2 {distance:.2f}"
        name = name if found.found[i] else "none found"
        pictures += [picture(f"{label}", clean[i]), picture(name, found.adversarial[i])]
    reached = found.distance[found.found]
    return Diagnosis(
        question="minimal_examples",
        source="galloway2019 Fig. 13",
        reading="Each image is followed by the nearest one that is taken for another "
        "class, with its softmax and distance: changes that cannot be seen are a fragile "
        "network's. Where none was found within the steps, the image itself is repeated.",
        numbers={
            "mean L2 distance": float(reached.mean()) if len(reached) else float("inf"),
            "found": float(found.found.double().mean()),
            "mean confidence": float(top[found.found].mean()) if len(reached) else 0.0,
        },
        settings={"n": len(rows), "steps": steps, "confidence": confidence},
        panels=(
            Panel(kind="pictures", title="Images and changes", pictures=tuple(pictures)),
        ),
    )
