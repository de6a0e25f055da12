"""How the ranks of a launch find each other, whatever the store already holds.

torchrun keeps one store over all restarts, and its hosts do not agree on the number of
restarts: a host that restarts its ranks because another host came back does not count it.
So the ranks agree on a fresh prefix each time, and keep their keys under it.
"""

from collections.abc import Callable
from datetime import timedelta
from secrets import token_hex
from time import monotonic, sleep

from torch.distributed.distributed_c10d import Store

PAUSE = 0.02
"""Seconds between two polls of the store."""


def agree_on_prefix(store: Store, rank: int, world: int, *, timeout: timedelta) -> str:
    """Return a new prefix for the store's keys, the same on all ranks.

    Each rank asks with a random token. Rank 0 answers every token that it sees, also one
    from before a restart, until all ranks have confirmed its answer.

    Raises:
        TimeoutError: Names the ranks that are missing.
    """
    if rank == 0:
        return _answer_all(store, set(range(1, world)), timeout)
    token = token_hex(8)
    store.set(f"advnorm/ask/{rank}", token)
    answer = f"advnorm/answer/{token}"
    if not _within(timeout, lambda: store.check([answer])):
        raise TimeoutError(f"rank 0 did not answer within {_minutes(timeout)}")
    prefix = store.get(answer).decode()
    store.set(f"{prefix}/{rank}", "here")
    return prefix


def _answer_all(store: Store, missing: set[int], timeout: timedelta) -> str:
    """Answer every rank on rank 0 until all have confirmed."""
    prefix, answered = f"advnorm/{token_hex(8)}", dict[int, bytes]()

    def complete() -> bool:
        for rank in sorted(missing):
            if store.check([f"{prefix}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"advnorm/ask/{rank}"]):
                token = store.get(f"advnorm/ask/{rank}")
                if answered.get(rank) != token:
                    store.set(f"advnorm/answer/{token.decode()}", prefix)
                    answered[rank] = token
        return not missing

    if not _within(timeout, complete):
        who = ", ".join(map(str, sorted(missing)))
        raise TimeoutError(
            f"rank {who} did not join within {_minutes(timeout)}: look at the output of "
            "its host"
        )
    return prefix


def _within(timeout: timedelta, condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it became true in time."""
    end = monotonic() + timeout.total_seconds()
    while not condition():
        if monotonic() > end:
            return False
        sleep(PAUSE)
    return True


def _minutes(timeout: timedelta) -> str:
    return f"{timeout.total_seconds() / 60:g} minutes"
