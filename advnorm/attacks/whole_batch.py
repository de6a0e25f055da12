r"""PGD on some rows of a batch against others, where an answer depends on the whole batch.

With batch statistics the logits of a row are a function of all rows. An adversary with the
rows A, who wants the rows B to be wrong, follows the gradient of the whole batch's loss,
through the statistics:

.. math::
    x_A \leftarrow \Pi_{S(x_A)}\Bigl(x_A + \alpha \, d\Bigl(\nabla_{x_A}
        \sum_{i \in B} \ell\bigl(f(x)_i, y_i\bigr)\Bigr)\Bigr)

With A and B all rows this is the joint attack on a batch. With few malicious rows A, and
the benign ones B, it is the Distribution Invading Attack (Wu et al., 2023,
arXiv:2301.12576). Of all iterates that counts at which the fewest rows of B are right.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from advnorm.attacks.classify import classify
from advnorm.attacks.pgd import NonFiniteGradientError, starting_point
from advnorm.attacks.targets import LogitsFn
from advnorm.draws import Draws
from advnorm.threat import Threat

BatchObjective = Callable[[Tensor, Tensor], Tensor]
"""``objective(logits, labels)``: one number for all rows, to be maximized."""


class AttackedBatch(NamedTuple):
    """A batch and the rows of it that matter to an adversary."""

    images: Tensor
    labels: Tensor
    moved: Tensor
    """The adversary's rows: their numbers in the batch."""
    counted: Tensor
    """The rows that the adversary wants to be wrong."""

    def with_moved(self, rows: Tensor) -> Tensor:
        """Return the batch with other images in the adversary's rows; no other changes."""
        return self.images.index_copy(0, self.moved, rows)


def whole_batch_pgd(
    logits_fn: LogitsFn,
    batch: AttackedBatch,
    threat: Threat,
    *,
    steps: int,
    step_size: float,
    objective: BatchObjective,
    draws: Draws,
    clean_start: float = 0.0,
) -> Tensor:
    """Return the batch at the worst iterate; only the adversary's rows are changed.

    Args:
        logits_fn: Maps a whole batch to its logits, which may depend on all rows.
        batch: The images, their labels, and whose rows they are.
        threat: The set around each of the adversary's rows.
        steps: Number of ascent steps.
        step_size: Length of a step, in units of the threat's norm.
        objective: What to maximize.
        draws: The random numbers of all rows.
        clean_start: Probability to start at the clean input.

    Raises:
        NonFiniteGradientError: If a gradient held NaN or infinity.
    """
    clean, labels = batch.images[batch.moved], batch.labels[batch.counted]
    rows = starting_point(clean, threat, clean_start=clean_start, draws=draws[batch.moved])
    worst, fewest = clean, len(labels) + 1
    for step in range(steps + 1):
        rows.requires_grad_(step < steps)
        with torch.set_grad_enabled(step < steps):
            logits = logits_fn(batch.with_moved(rows))[batch.counted]
        right = int((classify(logits.detach(), labels) == labels).sum())
        if right < fewest:
            worst, fewest = rows.detach(), right
        if step == steps or not fewest:
            break
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(objective(logits, labels), rows)
        if not grad.sum().isfinite():
            raise NonFiniteGradientError(
                "the attack met a gradient that is not finite: the model's logits "
                "overflow, or its weights or statistics are not numbers"
            )
        rows = threat.project(rows.detach() + step_size * threat.direction(grad), clean)
    return batch.with_moved(worst)


def total_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of the rows' cross-entropies."""
    return F.cross_entropy(logits, labels, reduction="sum")


def total_lead(logits: Tensor, labels: Tensor) -> Tensor:
    r"""Return :math:`\sum_i \min(\max_{k \ne y_i} z_{ik} - z_{iy_i}, 0)`.

    A row that is wrong already counts no more, unlike in the cross-entropy.
    """
    own = logits.gather(1, labels[:, None]).squeeze(1)
    wrong = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return (wrong - own).clamp(max=0).sum()


OBJECTIVES: dict[str, BatchObjective] = {
    "cross-entropy": total_cross_entropy,
    "lead": total_lead,
}
"""What an attack on a batch maximizes; one run each."""
