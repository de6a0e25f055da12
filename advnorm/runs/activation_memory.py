"""Peak memory of the tensors that autograd saves for backward passes."""

from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn


class ActivationMemory:
    """While entered, counts the bytes of saved tensors, without parameters and buffers.

    A storage that several functions save counts once. Works on the meta device too.

    >>> x = torch.ones(4, requires_grad=True)
    >>> with ActivationMemory(nn.Identity()) as memory:
    ...     y = (x.exp().exp()).sum()
    >>> memory.peak
    32
    """

    def __init__(self, model: nn.Module) -> None:
        own = [*model.parameters(), *model.buffers()]
        self._own = {_key(tensor) for tensor in own}
        self._users: dict[int, int] = {}
        self._now = 0
        self.peak = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def _pack(self, tensor: Tensor) -> "_SavedTensor":
        return _SavedTensor(tensor, self)

    def use(self, tensor: Tensor, change: int) -> None:
        """Count one more user of the tensor's storage, or one less."""
        key = _key(tensor)
        if key in self._own:
            return
        before = self._users.get(key, 0)
        self._users[key] = before + change
        if not before or not self._users[key]:
            self._now += change * tensor.untyped_storage().nbytes()
        self.peak = max(self.peak, self._now)


class _SavedTensor:
    """A saved tensor; it no longer counts once autograd drops it."""

    def __init__(self, tensor: Tensor, memory: ActivationMemory) -> None:
        self.tensor, self._memory = tensor.detach(), memory
        memory.use(self.tensor, 1)

    def __del__(self) -> None:
        self._memory.use(self.tensor, -1)


def _unpack(saved: _SavedTensor) -> Tensor:
    return saved.tensor


def _key(tensor: Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key
