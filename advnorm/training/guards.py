"""Non-finite gradients stop a run; suspicious validation accuracies raise an alarm."""

import torch
from torch import Tensor, nn

from advnorm.records import Accuracy, Verdicts

OVERFITTING_GAP = 0.3
"""Training-attack accuracy minus held-out PGD accuracy that raises an alarm."""
FALSE_GAP = 0.2
"""Held-out PGD accuracy minus that of a stronger attack that raises an alarm. In
sitawarin2021, Table 2, it is at most 13.64 points for sound models and at least 27.48 for
false robustness (AutoAttack there)."""


class NotFiniteError(FloatingPointError):
    """A NaN or infinity; raised before the optimizer's step."""


def gradient_norm(model: nn.Module) -> Tensor:
    """Return the Euclidean norm of all gradients; finite only if every entry is."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm(grads)).double()
    )
    return norm


def alarms(
    attacked: Accuracy | None,
    clean: Verdicts,
    robust: Verdicts,
    strong: Verdicts | None = None,
    *,
    classes: int,
) -> tuple[str, ...]:
    """Return warnings about validation accuracies that should not be trusted.

    ``attacked`` is the accuracy under the training attack, where there is one; ``strong``
    are verdicts of a stronger attack on some of the samples.
    """
    warnings = []
    if classes > 1 and len(clean.predictions) > 10 and len(set(clean.predictions)) == 1:
        warnings.append(f"one class ({clean.predictions[0]}) is predicted for every sample")
    held_out = robust.accuracy().fraction
    if (
        attacked is not None
        and attacked.fraction - held_out > OVERFITTING_GAP
        and held_out < attacked.fraction / 2
    ):
        warnings.append(
            "accuracy under the training attack is far above held-out PGD: catastrophic "
            "overfitting or false robustness"
        )
    if strong is not None and strong.samples:
        warnings += _false_robustness(robust, strong)
    return tuple(warnings)


def _false_robustness(robust: Verdicts, strong: Verdicts) -> list[str]:
    """Compare two attacks on the samples that both have seen (sitawarin2021, 3.2)."""
    weak = dict(zip(robust.samples, robust.robust, strict=True))
    before = sum(weak[sample] for sample in strong.samples)
    after, n = sum(strong.robust), len(strong.samples)
    if (before - after) / n <= FALSE_GAP or after >= before / 2:
        return []
    return [
        f"a stronger attack leaves less than half of what held-out PGD leaves on {n} "
        "samples: false robustness; run advnorm audit"
    ]
