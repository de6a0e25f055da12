r"""How far rounding takes each value off, node by node: bounds are of what is computed.

A model is computed in floating point: the value of a node is that of its function plus an
error :math:`|\delta_i| \le \rho_i` with

.. math:: \rho_i = 4\, u\, T_i,

the unit roundoff u and the size :math:`T_i` of the terms that the value is the sum of. In
``(x + 1e6) - 1e6`` the terms are a million times as large as what is left, and u of them is
an error that no margin may leave out. Verification therefore widens the box of every node
by :math:`\rho_i`, and a linear bound that goes back through a node with coefficients
:math:`a_i` falls by :math:`|a_i|^\top \rho_i`. Training does neither.

The size of a product's terms is bounded by :math:`\min(\|W_j\|_1 \|h\|_\infty,
\|W_j\|_2 \|h\|_2) + |b_j|`, which needs no second product. An operation gives the size of
its terms by its rule ``rounding``.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from advnorm.bounds.box import Box
from advnorm.bounds.operations import Call, Operation

UNITS = 4
"""Units of roundoff that one node may cost, times the size of its terms."""


def is_counted(images: Box) -> bool:
    """Tell whether rounding counts: in verification, not where bounds are trained on."""
    return images.copies == 1 and not torch.is_grad_enabled()


def widened(box: Box, error: Tensor | None, *, fresh: bool = False) -> Box:
    """Return a box that holds the values with their error.

    A ``fresh`` radius belongs to this box alone, and is written to.
    """
    if error is None:
        return box
    ball = box.ball and box.ball.loosened(error)
    radius = box.radius.add_(error) if fresh else box.radius + error
    return replace(box, radius=radius, ball=ball)


def of_images(images: Box) -> Tensor:
    """Return what rounding may cost the ends of a ball around images."""
    return _unit(images.radius) / 2 * images.magnitude


def error(operation: Operation, call: Call, box: Box) -> Tensor | None:
    """Return how far rounding may take a node's value off; ``None`` where it is exact.

    ``box`` is that of the value. The shape is the value's, or one that broadcasts to it.
    """
    if operation.rounding is None:
        return None
    call = call._replace(args=tuple(map(_without_terms, call.args)))
    boxes = [a for a in call.args if isinstance(a, Box)]
    coarsest = max(_unit(value.radius) for value in (box, *boxes))
    return (coarsest * operation.rounding(call, box)).to(box.radius.dtype)


def _without_terms(value: Any) -> Any:
    return replace(value, terms=None) if isinstance(value, Box) else value


def _unit(value: Tensor) -> float:
    return UNITS * torch.finfo(value.dtype).eps / 2
