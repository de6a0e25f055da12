"""What stops a run before it spoils its weights, and what raises an alarm."""

import torch
from torch import Tensor, nn

from advnorm.records import Accuracy, Verdicts

OVERFITTING_GAP = 0.3
"""Accuracy under the training attack minus that under held-out PGD that raises an alarm."""


class NotFiniteError(FloatingPointError):
    """NaN or infinity where a number is needed; raised before the optimizer's step."""


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the Euclidean norm of all gradients; finite only if every entry is."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm(grads)).double()
    )
    return norm


def alarms(
    train: Accuracy, clean: Verdicts, robust: Verdicts, *, classes: int
) -> tuple[str, ...]:
    """Return sentences about a validation that should not be trusted as it stands."""
    found = []
    if classes > 1 and len(clean.predictions) > 10 and len(set(clean.predictions)) == 1:
        found.append(f"one class ({clean.predictions[0]}) is predicted for every sample")
    gap = train.rate - robust.accuracy().rate
    if gap > OVERFITTING_GAP and robust.accuracy().rate < train.rate / 2:
        found.append(
            f"accuracy under the training attack ({train.rate:.1%}) is far above held-out "
            f"PGD ({robust.accuracy().rate:.1%}): catastrophic overfitting or false "
            "robustness"
        )
    return tuple(found)
