"""Ranks agree on a new prefix in a store, whatever an earlier launch has left there."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from advnorm.rendezvous import agree_on_prefix

SOON = timedelta(seconds=20)


def agree_all(store, world: int) -> list[str]:
    with ThreadPoolExecutor(world) as threads:
        waiting = [
            threads.submit(agree_on_prefix, store, rank, world, timeout=SOON)
            for rank in range(world)
        ]
        return [future.result() for future in waiting]


def test_all_ranks_agree_and_each_launch_has_its_own_prefix():
    store = HashStore()
    names = [agree_all(store, 3) for _ in range(3)]
    assert all(len(set(each)) == 1 for each in names)
    assert len({each[0] for each in names}) == 3


def test_the_token_of_a_killed_rank_misleads_nobody():
    """A rank that was killed while it waited has left its token."""
    store = HashStore()
    store.set("advnorm/ask/1", "old")
    first, second = agree_all(store, 2)
    assert first == second
    assert store.get("advnorm/answer/old").decode() == first


def test_a_missing_rank_is_named():
    store = HashStore()
    store.set("advnorm/ask/1", "a rank that died after it had asked")
    with pytest.raises(TimeoutError, match="rank 1, 2 did not join within"):
        agree_on_prefix(store, 0, 3, timeout=timedelta(seconds=0.3))
    with pytest.raises(TimeoutError, match="rank 0 did not answer within"):
        agree_on_prefix(HashStore(), 1, 3, timeout=timedelta(seconds=0.3))
