"""The peak of live memory: what the operations of a block keep alive, each storage once."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """Follows the tensors that are alive, each storage once, and their largest sum."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        """Run an operation and look at what it leaves alive."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.sizes[StorageWeakRef(storage)] = storage.nbytes()
        self.sizes = {ref: size for ref, size in self.sizes.items() if not ref.expired()}
        self.peak = max(self.peak, sum(self.sizes.values()))
        return result

    @property
    def megabytes(self) -> float:
        """The peak in MB."""
        return self.peak / 2**20
