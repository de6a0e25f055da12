"""Which samples of a batch belong to which domain: clean or adversarial."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from advnorm.norms.thread_scope import exclusive

Domain = Literal["clean", "adversarial"]
DOMAINS: tuple[Domain, Domain] = ("clean", "adversarial")


@dataclass(frozen=True)
class Route:
    """The first ``clean`` rows are clean, the rest adversarial; or all are of one domain.

    Without a route a batch is taken to be adversarial: the careful choice, and the branch
    that an attack inside training sees.
    """

    clean: int | None = None
    domain: Domain = "adversarial"

    def clean_rows(self, batch: int) -> int:
        """Return how many rows, from the first, are clean."""
        if self.clean is None:
            return batch if self.domain == "clean" else 0
        if not 0 <= self.clean <= batch:
            raise ValueError(
                f"the route says that {self.clean} rows are clean, but the batch has "
                f"{batch}: route the batch that is passed to the model"
            )
        return self.clean

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the clean and the adversarial rows of ``x``; their gradients are joined.

        Not two slices: the gradient of each would be as large as ``x``, and mostly zero.
        """
        rows = self.clean_rows(len(x))
        clean, adversarial = torch.split(x, [rows, len(x) - rows])
        return clean, adversarial


class RoutedLayer(nn.Module):
    """A layer that asks which domain a sample belongs to.

    The route is a value that every layer of a model holds; :func:`route` replaces it and
    puts it back. So two models never meet, a copy has its own, and a block that is
    recomputed in the backward pass sees the route of its forward pass.
    """

    route: Route = Route()
    fused: bool = True
    """Whether it may use a function whose derivative was written by hand, once."""


_PRESENT: WeakKeyDictionary[nn.Module, Route] = WeakKeyDictionary()


def current_route(model: nn.Module) -> Route:
    """Return the route of a model now; also of one whose layers do not read it."""
    return _PRESENT.get(model, Route())


def routed_layers(model: nn.Module) -> list[RoutedLayer]:
    """Return the layers of a model that read the route."""
    return [layer for layer in model.modules() if isinstance(layer, RoutedLayer)]


@contextmanager
def route(
    model: nn.Module, *, clean: int | None = None, domain: Domain | None = None
) -> Iterator[None]:
    """Tell the domain-aware layers of ``model`` whose samples they see, then restore each.

    Give ``clean``, the number of rows from the first that are clean (the rest are
    adversarial), or ``domain``, for a whole batch. Every other layer ignores it.
    """
    if (clean is None) == (domain is None):
        raise ValueError("give either clean=ROWS or domain='clean'|'adversarial'")
    if domain is not None and domain not in DOMAINS:
        raise ValueError(f"no domain {domain!r}; there are: {', '.join(DOMAINS)}")
    if clean is not None and clean < 0:
        raise ValueError(f"clean is a number of rows, not {clean}")
    new = Route(clean=clean, domain=domain or "adversarial")
    with exclusive(model):
        layers = routed_layers(model)
        before = [vars(layer).get("route") for layer in layers]
        outer = _PRESENT.get(model)
        try:
            _PRESENT[model] = new
            for layer in layers:
                layer.route = new
            yield
        finally:
            if outer is None:
                del _PRESENT[model]
            else:
                _PRESENT[model] = outer
            for layer, old in zip(layers, before, strict=True):
                if old is None:
                    del layer.route
                else:
                    layer.route = old


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Let second derivatives pass through every norm, for the time of a block; slower."""
    with exclusive(model):
        layers = [layer for layer in routed_layers(model) if layer.fused]
        try:
            for layer in layers:
                layer.fused = False
            yield
        finally:
            for layer in layers:
                del layer.fused
