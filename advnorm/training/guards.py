"""What stops a run before it spoils its weights, and what raises an alarm."""

import torch
from torch import Tensor, nn

from advnorm.records import Accuracy, Verdicts

OVERFITTING_GAP = 0.3
"""Accuracy under the training attack minus that under held-out PGD that raises an alarm."""
FALSE_GAP = 0.2
"""Held-out PGD minus a stronger attack that raises one: sitawarin2021's Table 2 has at most
13.64 points for sound models and at least 27.48 for false robustness (AutoAttack there)."""


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
    attacked: Accuracy | None,
    clean: Verdicts,
    robust: Verdicts,
    strong: Verdicts | None = None,
    *,
    classes: int,
) -> tuple[str, ...]:
    """Return sentences about a validation that should not be trusted as it stands.

    ``attacked`` is the accuracy under the training attack, where there is one; ``strong``
    are verdicts of a stronger attack on some of the samples. The other figures are in the
    record that carries the alarm.
    """
    found = []
    if classes > 1 and len(clean.predictions) > 10 and len(set(clean.predictions)) == 1:
        found.append(f"one class ({clean.predictions[0]}) is predicted for every sample")
    held_out = robust.accuracy().fraction
    if (
        attacked is not None
        and attacked.fraction - held_out > OVERFITTING_GAP
        and held_out < attacked.fraction / 2
    ):
        found.append(
            "accuracy under the training attack is far above held-out PGD: catastrophic "
            "overfitting or false robustness"
        )
    if strong is not None and strong.samples:
        found += _false_robustness(robust, strong)
    return tuple(found)


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
