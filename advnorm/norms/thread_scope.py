"""Scopes of a model belong to one thread at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_GUARD = threading.Lock()


@contextmanager
def exclusive(model: nn.Module) -> Iterator[None]:
    """Let other threads wait that would change the same model's modes or routes.

    Interleaved scopes would put back each other's state. One thread may nest as it likes.
    """
    with _GUARD:
        lock = _LOCKS.setdefault(model, threading.RLock())
    with lock:
        yield
