"""A batch sharded over ranks: each takes its rows, and gathers the others' verdicts."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from advnorm import ranks


def own_rows(count: int) -> slice:
    """Return this rank's rows of a batch; the first one where it has none.

    A rank without rows runs along on the first sample, and its verdict is thrown away.
    """
    return ranks.shard(count) if ranks.rank() < count else slice(0, 1)


def gather_rows(own: Tensor, count: int) -> Tensor:
    """Return the rows of all ranks, from those of each."""
    if ranks.size() == 1:
        return own
    return ranks.all_gather(own[: len(range(count)[ranks.shard(count)])], count)


@contextmanager
def failing_together() -> Iterator[None]:
    """Stop all ranks where one of them raises."""
    if ranks.size() == 1:
        yield
        return
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
    if ranks.all_reduce_max(int(failure is not None)):
        raise failure or ranks.OtherRankError("another rank failed, and says why")
