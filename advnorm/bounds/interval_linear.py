r"""Interval rules of layers that are linear, or that only move values.

.. math::
    W[m - r, m + r] + b \subseteq [W m + b - |W| r, \; W m + b + |W| r]

which is the smallest box. On an L2 ball the dual norm gives another one,
:math:`W c + b \pm \epsilon \|W \operatorname{diag}(s)\|_2` (row by row), and both hold. So
does what comes of parting the values of each row: those that the box hardly lets move, as
black and white pixels one way, count by their room, and only the others by the norm.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.bounds.box import Ball, Box, between
from advnorm.bounds.interval import layer_rule

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]
STUCK = 1e-4
"""Values that may move by no more than this part of the radius count by their room."""


@layer_rule(nn.Linear)
def linear(layer: nn.Linear, box: Box) -> Box:
    """Multiply the radius by the absolute weights."""
    return _weighted(F.linear, layer.weight, layer.bias, box)


@layer_rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: nn.Conv2d, box: Box) -> Box:
    """Convolve the radius with the absolute weights, padded as the layer pads."""
    if layer.padding_mode != "zeros":  # a pixel that is repeated has several weights
        box = Box(box.lead, box.radius)
    return _weighted(layer._conv_forward, layer.weight, layer.bias, box)


@layer_rule(nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
def average(layer: nn.Module, box: Box) -> Box:
    """Average centre and radius alike."""
    return Box(layer(box.lead), layer(box.radius))


@layer_rule(nn.Flatten, nn.Unflatten)
def moved(layer: nn.Flatten | nn.Unflatten, box: Box) -> Box:
    """Move the values of each sample."""
    first = layer.start_dim if isinstance(layer, nn.Flatten) else layer.dim
    if first == 0:
        raise NotImplementedError("it mixes the samples of a batch")
    ball = box.ball and box.ball.moved(layer)
    return Box(layer(box.lead), layer(box.radius), ball)


@layer_rule(nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d)
def padded(layer: nn.Module, box: Box) -> Box:
    """Pad centre and radius alike: a zero is known exactly."""
    return Box(layer(box.lead), layer(box.radius))


@layer_rule(nn.Identity)
def identity(layer: nn.Identity, box: Box) -> Box:
    """Return the box."""
    return box


@layer_rule(nn.Dropout, nn.Dropout1d, nn.Dropout2d)
def dropout(layer: nn.Module, box: Box) -> Box:
    """Return the box in evaluation; in training drop the same values of every bound."""
    if not layer.training or not getattr(layer, "p", 0):
        return box
    if box.clean is None:
        raise ValueError("it drops values at random now: call model.eval() before")
    kept = layer(torch.ones_like(box.radius))
    return Box(box.lead * torch.cat([kept, kept]), box.radius * kept)


def scaled(box: Box, factor: Tensor | float, shift: Tensor | float) -> Box:
    """Return ``factor * box + shift``; both broadcast against one sample."""
    size = factor.abs() if isinstance(factor, Tensor) else abs(factor)
    is_moved = isinstance(size, int) and size == factor == 1  # a shift alone
    lead = (box.lead if is_moved else box.lead * factor) + shift
    radius = box.radius if is_moved else box.radius * size
    if lead.shape[1:] != box.shape[1:]:  # values that are repeated are not free: no ball
        return Box(lead, radius.expand(len(radius), *lead.shape[1:]))
    return Box(lead, radius, box.ball and box.ball.stretched(factor, shift))


def _weighted(apply: Linear, weight: Tensor, bias: Tensor | None, box: Box) -> Box:
    found = Box(apply(box.lead, weight, bias), apply(box.radius, _size(weight), None))
    if box.ball is None:
        return found
    centre = apply(box.ball.centre, weight, bias)
    rooms = box.ball.room(box.lower, box.upper)
    fall = _fall(apply, weight, box.ball, *rooms)
    rise = _fall(apply, weight, box.ball, *reversed(rooms))
    if box.ball.error is not None:
        error = apply(box.ball.error, _size(weight), None)
        fall, rise = fall + error, rise + error
    lower = torch.maximum(found.lower, centre - fall)
    upper = torch.minimum(found.upper, centre + rise)
    upper = torch.maximum(lower, upper)  # rounding must not turn them round
    return between(found.clean, lower, upper)


def _size(weight: Tensor) -> Tensor:
    """Return the absolute weights, laid out alike: so are centre and radius then.

    ``abs`` forgets a channels-last layout of one channel, and ReLU is slow on two layouts.
    """
    found = weight.abs()
    if weight.ndim == 4 and weight.shape[1] == weight.stride(1) == 1:
        first, _, *rest = found.stride()
        found = found.as_strided(found.shape, (first, 1, *rest))
    return found


def _fall(apply: Linear, weight: Tensor, ball: Ball, down: Tensor, up: Tensor) -> Tensor:
    """Bound how far each output falls: a value goes down by a positive weight, else up."""
    free = apply(ball.scale.square(), weight.square(), None)
    still, moving = torch.zeros_like(free), torch.zeros_like(free)
    for part, room in ((weight.clamp(min=0), down), (weight.clamp(max=0).abs(), up)):
        stuck = room <= STUCK * ball.eps
        still = still + apply(ball.scale.abs() * room * stuck, part, None)
        moving = moving + apply(ball.scale.square() * ~stuck, part.square(), None)
    return torch.minimum(ball.eps * _norm(free), still + ball.eps * _norm(moving))


def _norm(square: Tensor) -> Tensor:
    """Return the root, which has no gradient at zero."""
    return square.clamp(min=torch.finfo(square.dtype).tiny).sqrt()
