"""Which domain each sample of a batch belongs to: clean or adversarial."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from advnorm.norms.thread_scope import exclusive

Domain = Literal["clean", "adversarial"]
"""What an image of a batch is."""
DOMAINS: tuple[Domain, Domain] = ("clean", "adversarial")


@dataclass(frozen=True)
class Route:
    """The first ``clean`` rows are clean, the rest adversarial; or all are of one domain.

    Without a route a batch counts as adversarial: the conservative choice, and the branch
    that an attack inside training uses.
    """

    clean: int | None = None
    domain: Domain = "adversarial"

    def clean_rows(self, batch: int) -> int:
        """Return the number of clean rows, which come first."""
        if self.clean is None:
            return batch if self.domain == "clean" else 0
        if not 0 <= self.clean <= batch:
            raise ValueError(
                f"the route has {self.clean} clean rows, but the batch has {batch} rows: "
                "set norms.route for the batch that is passed to the model"
            )
        return self.clean

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the clean and the adversarial rows of ``x``.

        By one split, not two slices: the gradient of a slice is as large as ``x``.
        """
        rows = self.clean_rows(len(x))
        clean, adversarial = torch.split(x, [rows, len(x) - rows])
        return clean, adversarial


class RoutedLayer(nn.Module):
    """A layer that depends on the domain of each sample.

    Every such layer has its own route, which :func:`route` replaces and restores. So models
    do not share a route, a copy has its own, and a block that is recomputed in the backward
    pass sees the route of its forward pass.
    """

    route: Route = Route()
    fused: bool = True
    """Whether it uses its kernel, which can be differentiated only once."""


_CURRENT: WeakKeyDictionary[nn.Module, Route] = WeakKeyDictionary()


def current_route(model: nn.Module) -> Route:
    """Return the current route of a model, also of one without domain-aware layers."""
    return _CURRENT.get(model, Route())


def routed_layers(model: nn.Module) -> list[RoutedLayer]:
    """Return the domain-aware layers of a model."""
    return [layer for layer in model.modules() if isinstance(layer, RoutedLayer)]


@contextmanager
def route(
    model: nn.Module, *, clean: int | None = None, domain: Domain | None = None
) -> Iterator[None]:
    """Set the domains of the samples for the domain-aware layers, then restore each layer.

    Give either ``clean``, the number of clean rows, which come first (the others are
    adversarial), or ``domain`` for a whole batch. Other layers ignore the route.
    """
    if (clean is None) == (domain is None):
        raise ValueError(
            "give either clean=NUMBER_OF_ROWS, or domain='clean' or domain='adversarial'"
        )
    if domain is not None and domain not in DOMAINS:
        raise ValueError(f"no domain {domain!r}; there are: {', '.join(DOMAINS)}")
    if clean is not None and clean < 0:
        raise ValueError(f"clean is the number of clean rows, from 0, not {clean}")
    new = Route(clean=clean, domain=domain or "adversarial")
    with exclusive(model):
        layers = routed_layers(model)
        before = [vars(layer).get("route") for layer in layers]
        outer = _CURRENT.get(model)
        try:
            _CURRENT[model] = new
            for layer in layers:
                layer.route = new
            yield
        finally:
            if outer is None:
                del _CURRENT[model]
            else:
                _CURRENT[model] = outer
            for layer, old in zip(layers, before, strict=True):
                if old is None:
                    del layer.route
                else:
                    layer.route = old


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Allow second derivatives through every norm inside the block; slower."""
    with exclusive(model):
        layers = [layer for layer in routed_layers(model) if layer.fused]
        try:
            for layer in layers:
                layer.fused = False
            yield
        finally:
            for layer in layers:
                del layer.fused
