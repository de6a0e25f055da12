"""The parameters and buffers of a model as they were, to compare with and to put back."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class _Slot(NamedTuple):
    """The place of a tensor in a module, the tensor, and a copy of its values."""

    store: dict[str, Any]
    name: str
    tensor: Tensor
    value: Tensor

    def moved(self) -> bool:
        """Return whether the tensor was replaced, or its values changed."""
        now = self.store.get(self.name)
        return now is not self.tensor or not torch.equal(
            self.tensor.detach().nan_to_num(), self.value.nan_to_num()
        )


class TensorSnapshot:
    """Every tensor of a model; a pass may write to a tensor, or replace it."""

    def __init__(self, model: nn.Module) -> None:
        self._slots = [
            _Slot(store, name, tensor, tensor.detach().clone())
            for module in model.modules()
            for store in (module._parameters, module._buffers)
            for name, tensor in store.items()
            if tensor is not None
        ]

    def moved(self) -> int:
        """Return how many tensors have changed."""
        return sum(slot.moved() for slot in self._slots)

    def restore(self) -> None:
        """Restore the tensors that have changed; the others are not written to."""
        with torch.no_grad():
            for slot in self._slots:
                if slot.moved():
                    slot.store[slot.name] = slot.tensor
                    slot.tensor.copy_(slot.value)
