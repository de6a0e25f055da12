"""Ranks that meet by a store agree on a new name, whatever others have left there."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from advnorm.rendezvous import meet

SOON = timedelta(seconds=20)


def meet_all(store, world: int) -> list[str]:
    with ThreadPoolExecutor(world) as threads:
        waiting = [
            threads.submit(meet, store, rank, world, timeout=SOON) for rank in range(world)
        ]
        return [future.result() for future in waiting]


def test_all_ranks_agree_and_each_meeting_has_its_own_name():
    store = HashStore()
    names = [meet_all(store, 3) for _ in range(3)]
    assert all(len(set(each)) == 1 for each in names)
    assert len({each[0] for each in names}) == 3


def test_what_an_earlier_life_has_asked_misleads_nobody():
    """A rank that was killed while it waited has left its word."""
    store = HashStore()
    store.set("advnorm/ask/1", "old")
    first, second = meet_all(store, 2)
    assert first == second
    assert store.get("advnorm/answer/old").decode() == first


def test_a_rank_that_does_not_come_is_named():
    store = HashStore()
    store.set("advnorm/ask/1", "a rank that died after it had asked")
    with pytest.raises(TimeoutError, match="rank 1, 2 did not come within"):
        meet(store, 0, 3, timeout=timedelta(seconds=0.3))
    with pytest.raises(TimeoutError, match="rank 0 did not answer within"):
        meet(HashStore(), 1, 3, timeout=timedelta(seconds=0.3))
