"""Whether the logits of a model after many queries are those before them.

State outside of parameters and buffers (a counter, a list of earlier queries, a global)
shows in its effect. So the same images are queried before and after; new images are also
queried on a copy of the model that has seen no query; and the slope between neighbouring
images is compared.
"""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.attacks import LogitsFn
from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.checks.significance import rounding_of, share_differing
from advnorm.evaluation.engine import logits_of
from advnorm.threat import Threat

FEW = 32
"""The number of samples that are compared."""
_STEP = 0.1
"""Between neighbours, in units of eps."""


class Change(NamedTuple):
    """What has changed."""

    again: float
    """The share of images that got another answer the second time."""
    fresh: float | None
    """The share of new images that a copy without history answers otherwise."""
    slope: float
    """The typical slope between neighbours, relative to the one before."""


class History:
    """The answers of a model before any other query: create it first."""

    def __init__(self, model: nn.Module, batch: Batch, threat: Threat) -> None:
        self.logits_fn = logits_of(model)
        self.images, self.threat = batch.images[:FEW], threat
        self.draws = Draws.of(0, batch.samples[:FEW]).stream("history")
        self.copy, self.rounding = _copy(model), rounding_of(model)
        self.points = self._points("before")
        self.logits = self._ask(self.points)

    def change(self) -> Change:
        """Query again, and return what has changed."""
        again = self._ask(self.points)
        points = self._points("after")
        logits = self._ask(points)
        before, after = _steepness(self.logits), _steepness(logits)
        fresh = None
        if self.copy is not None:
            fresh = share_differing(logits, self._ask(points, of_copy=True), self.rounding)
        return Change(
            share_differing(self.logits, again, self.rounding),
            fresh,
            1.0 if before == after else (after / before).item(),
        )

    def _points(self, name: str) -> Tensor:
        """Return points in the ball around the images, and a neighbour of each."""
        draws = self.draws.stream(name)
        x = self.threat.sample(self.images, draws)
        signs = torch.where(draws.stream("step").bits(*x.shape[1:]) > 0, 1.0, -1.0).to(x)
        near = self.threat.scaled(_STEP)
        return torch.cat([x, near.project(x + self.threat.eps * signs, x)])

    @torch.no_grad()
    def _ask(self, points: Tensor, *, of_copy: bool = False) -> Tensor:
        logits_fn = self.copy if of_copy else self.logits_fn
        assert logits_fn is not None
        return torch.cat([logits_fn(x) for x in torch.split(points, FEW)])


def _steepness(logits: Tensor) -> Tensor:
    here, near = logits.double().chunk(2)
    return (near - here).abs().amax(1).median()


def _copy(model: nn.Module) -> LogitsFn | None:
    """Return the logits function of a copy that has seen no query, if it can be copied."""
    try:
        return logits_of(deepcopy(model))
    except Exception:  # a model that cannot be copied: whatever it raises
        return None
