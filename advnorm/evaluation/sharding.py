"""A batch judged by all ranks, each its rows; every rank learns what all found."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from advnorm import ranks
from advnorm.attacks import LogitsFn
from advnorm.draws import Draws


def dealt(
    judge: Callable[[LogitsFn, Tensor, Tensor, Draws], tuple[Any, ...]],
    logits_fn: LogitsFn,
    images: Tensor,
    labels: Tensor,
    draws: Draws,
) -> tuple[Any, ...]:
    """Return what ``judge`` finds on the batch: tensors of a row a sample.

    A rank without rows judges the first sample and throws the finding away. What one rank
    raises stops all of them.
    """
    if ranks.size() == 1:
        return judge(logits_fn, images, labels, draws)
    count, failure, found = len(images), None, None
    own = ranks.shard(count)
    rows = own if ranks.rank() < count else slice(0, 1)
    try:
        found = judge(logits_fn, images[rows], labels[rows], draws[rows])
    except Exception as error:
        failure = error
    if ranks.all_reduce_max(int(failure is not None)):
        raise failure or ranks.OtherRankError("another rank failed, and says why")
    assert found is not None
    mine = len(range(count)[own])
    return tuple(p if p is None else ranks.all_gather(p[:mine], count) for p in found)
