"""What a model answers, in a fresh pass."""

import torch
from torch import Tensor

from advnorm.attacks import LogitsFn, classify
from advnorm.evaluation.inputs import check_finite


def predict(logits_fn: LogitsFn, images: Tensor, labels: Tensor) -> Tensor:
    """Return the class of each image; a tie is broken against the label.

    Logits that are not finite are refused: NaN is no prediction.
    """
    with torch.no_grad():
        logits = logits_fn(images)
    check_finite(logits)
    return classify(logits, labels)
