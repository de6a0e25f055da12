"""One thread at a time sets modes and routes of a model."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import nn

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_GUARD = threading.Lock()


@contextmanager
def exclusive(model: nn.Module) -> Iterator[None]:
    """Make other threads wait before they set modes or routes of the same model.

    Interleaved scopes would restore each other's state. A thread may nest scopes freely.
    """
    with _GUARD:
        lock = _LOCKS.setdefault(model, threading.RLock())
    with lock:
        yield
