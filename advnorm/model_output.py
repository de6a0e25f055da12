"""What a model returns: a tensor of logits, or something that has them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn


def read_logits(output: Any) -> Tensor:
    """Return the logits of what a model returned: a tensor, or something that has them.

    Of a tuple or list without a field ``logits`` they are the first item.
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif isinstance(output, tuple | list) and output and not hasattr(output, "logits"):
        logits = output[0]
    else:
        logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model returns a {type(output).__name__} without logits: return a tensor, "
            "or wrap it, as in lambda images: model(images)['scores']"
        )
    return logits


class LogitsOnly(nn.Module):
    """A model that returns its logits alone, where the network's output names them."""

    def __init__(self, network: nn.Module, *, item: str | int | None = None) -> None:
        super().__init__()
        self.network, self.item = network, item

    def forward(self, images: Tensor) -> Tensor:
        """Return an item of the output, or its attribute ``logits``."""
        output = self.network(images)
        logits: Tensor = output.logits if self.item is None else output[self.item]
        return logits


def with_logits_only(
    network: nn.Module, images: Tensor, *, classes: int | None = None
) -> nn.Module:
    """Return the network, or one that returns the logits alone.

    They are what its output names ``logits``; or the first item of a tuple or list, if it
    has as many columns as there are ``classes``. A copy of the network is run once on
    ``images``. One that does not run on them is returned as it is: who uses it says why.
    """
    like = next(network.parameters(), images)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            output = deepcopy(network).eval()(
                images.to(device=like.device, dtype=like.dtype)
            )
    except Exception:
        return network
    if isinstance(getattr(output, "logits", None), Tensor):
        return LogitsOnly(network)
    if isinstance(output, Mapping) and isinstance(output.get("logits"), Tensor):
        return LogitsOnly(network, item="logits")
    first = output[0] if isinstance(output, tuple | list) and output else None
    if isinstance(first, Tensor) and first.shape == (len(images), classes):
        return LogitsOnly(network, item=0)
    return network
