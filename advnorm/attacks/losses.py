r"""The difference of logits ratio, a loss that no rescaling of the logits can hide from.

Croce & Hein (2020, https://arxiv.org/abs/2003.01690), section 4. The gradient of the
cross-entropy vanishes where a model is sure of itself, so a model that multiplies its
logits looks robust. These losses divide a margin by a gap between the largest logits
:math:`z_{\pi_1} \ge z_{\pi_2} \ge \dots`: they keep their value when the logits are
multiplied by a positive number or shifted by a constant.

The gap needs 3 classes, or 4 with a target. With fewer the plain margin is used: its size
depends on the scale of the logits, the direction of its gradient does not.
"""

import torch
from torch import Tensor

from advnorm.attacks.targets import Gain

_CLASSES, _TARGETED_CLASSES = 3, 4


def dlr(labels: Tensor) -> Gain:
    r"""Return the difference of logits ratio (Croce & Hein, 2020, Eqn. 6), untargeted.

    .. math::
        -\frac{z_y - \max_{i \ne y} z_i}{z_{\pi_1} - z_{\pi_3}}

    With 2 classes there is no :math:`z_{\pi_3}`, and the margin is not divided: see
    :func:`dlr_reason`. It is positive where the prediction is wrong.

    Args:
        labels: Class indices :math:`y`, shape ``(batch,)``.

    >>> dlr(torch.tensor([0]))(torch.tensor([[5.0, 3.0, 1.0, 0.0]]))  # -(5 - 3) / (5 - 1)
    tensor([-0.5000])
    """

    def gain(logits: Tensor) -> Tensor:
        classes = logits.shape[1]
        if classes < 2:
            raise ValueError("a margin needs a wrong class: the model has one logit only")
        wrong = logits.scatter(1, labels[:, None], -torch.inf).max(1).values
        margin = wrong - _at(logits, labels)
        if dlr_reason(classes):
            return margin
        top = logits.topk(3, dim=1).values
        return _ratio(margin, top[:, 0] - top[:, 2])

    return gain


def targeted_dlr(labels: Tensor, targets: Tensor) -> Gain:
    r"""Return the difference of logits ratio towards targets (Eqn. 8 of the paper).

    .. math::
        -\frac{z_y - z_t}{z_{\pi_1} - (z_{\pi_3} + z_{\pi_4}) / 2}

    With 2 or 3 classes there is no :math:`z_{\pi_4}`, and the margin
    :math:`z_t - z_y` is not divided: see :func:`targeted_dlr_reason`.

    Args:
        labels: Class indices :math:`y`, shape ``(batch,)``.
        targets: Wrong classes :math:`t`, shape ``(batch,)``.

    >>> gain = targeted_dlr(torch.tensor([0]), torch.tensor([3]))
    >>> gain(torch.tensor([[6.0, 5.0, 3.0, 1.0]]))  # -(6 - 1) / (6 - 2)
    tensor([-1.2500])
    """

    def gain(logits: Tensor) -> Tensor:
        margin = _at(logits, targets) - _at(logits, labels)
        if targeted_dlr_reason(logits.shape[1]):
            return margin
        top = logits.topk(4, dim=1).values
        return _ratio(margin, top[:, 0] - (top[:, 2] + top[:, 3]) / 2)

    return gain


def dlr_reason(classes: int) -> str | None:
    """Say why :func:`dlr` uses the plain margin with few classes, if it does."""
    return _reason("DLR", classes, _CLASSES)


def targeted_dlr_reason(classes: int) -> str | None:
    """Say why :func:`targeted_dlr` uses the plain margin with few classes, if it does.

    >>> targeted_dlr_reason(3)
    'the targeted DLR needs 4 classes, there are 3: the plain margin is used instead'
    """
    return _reason("targeted DLR", classes, _TARGETED_CLASSES)


def _reason(loss: str, classes: int, needed: int) -> str | None:
    if classes >= needed:
        return None
    return (
        f"the {loss} needs {needed} classes, there are {classes}: "
        "the plain margin is used instead"
    )


def _at(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None]).squeeze(1)


def _ratio(margin: Tensor, gap: Tensor) -> Tensor:
    """Divide, where the gap is not 0: logits may tie, and a gradient must stay finite."""
    return margin / torch.where(gap > 0, gap, 1)
