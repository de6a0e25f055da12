"""How much memory the tensors take that are kept for backward passes, at most at once."""

from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn


class ActivationMemory:
    """While entered, counts the bytes of saved tensors; parameters and buffers are not.

    A storage that several functions save counts once. Works on the meta device too.

    >>> x = torch.ones(4, requires_grad=True)
    >>> with ActivationMemory(nn.Identity()) as live:
    ...     y = (x.exp().exp()).sum()
    >>> live.most
    32
    """

    def __init__(self, model: nn.Module) -> None:
        own = [*model.parameters(), *model.buffers()]
        self._own = {_key(tensor) for tensor in own}
        self._users: dict[int, int] = {}
        self._now = 0
        self.most = 0
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
        self.most = max(self.most, self._now)


class _SavedTensor:
    """A saved tensor; it is given back when nobody needs it any more."""

    def __init__(self, tensor: Tensor, live: ActivationMemory) -> None:
        self.tensor, self._live = tensor.detach(), live
        live.use(self.tensor, 1)

    def __del__(self) -> None:
        self._live.use(self.tensor, -1)


def _unpack(kept: _SavedTensor) -> Tensor:
    return kept.tensor


def _key(tensor: Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key
