"""How the ranks of a launch find each other, whatever is in the store already.

torchrun keeps one store over all restarts, and its hosts do not agree on how many there
were: one that starts its ranks over because another host came back does not count it. So
the ranks agree on a fresh name each time they meet, and keep their keys under it.
"""

from collections.abc import Callable
from datetime import timedelta
from secrets import token_hex
from time import monotonic, sleep

from torch.distributed.distributed_c10d import Store

PAUSE = 0.02
"""Seconds between two looks at the store."""


def meet(store: Store, rank: int, world: int, *, timeout: timedelta) -> str:
    """Return a new name that all ranks have agreed on.

    Each rank asks with a random word of its own. The first rank answers every word that it
    sees, also one of an earlier life, until all ranks have confirmed its answer.

    Raises:
        TimeoutError: Names the ranks that did not come.
    """
    if rank == 0:
        return _invite(store, set(range(1, world)), timeout)
    word = token_hex(8)
    store.set(f"advnorm/ask/{rank}", word)
    answer = f"advnorm/answer/{word}"
    if not _within(timeout, lambda: store.check([answer])):
        raise TimeoutError(f"rank 0 did not answer within {_minutes(timeout)}")
    name = store.get(answer).decode()
    store.set(f"{name}/{rank}", "here")
    return name


def _invite(store: Store, missing: set[int], timeout: timedelta) -> str:
    name, answered = f"advnorm/{token_hex(8)}", dict[int, bytes]()

    def complete() -> bool:
        for rank in sorted(missing):
            if store.check([f"{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"advnorm/ask/{rank}"]):
                word = store.get(f"advnorm/ask/{rank}")
                if answered.get(rank) != word:
                    store.set(f"advnorm/answer/{word.decode()}", name)
                    answered[rank] = word
        return not missing

    if not _within(timeout, complete):
        who = ", ".join(map(str, sorted(missing)))
        raise TimeoutError(
            f"rank {who} did not come within {_minutes(timeout)}: see what its host says"
        )
    return name


def _within(timeout: timedelta, condition: Callable[[], bool]) -> bool:
    """Wait for a condition; tell whether it came true in time."""
    end = monotonic() + timeout.total_seconds()
    while not condition():
        if monotonic() > end:
            return False
        sleep(PAUSE)
    return True


def _minutes(timeout: timedelta) -> str:
    return f"{timeout.total_seconds() / 60:g} minutes"
