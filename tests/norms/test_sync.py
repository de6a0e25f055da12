"""Two ranks with sync equal one process, forward and backward."""

import pytest
import sync_ranks
import torch
import torch.multiprocessing as mp
from sync_ranks import CASES, CLEAN, SHAPES


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sync")
    mp.spawn(sync_ranks.rank, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{index}.pt") for index in range(2)]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(c) for c in CASES])
@pytest.mark.parametrize("shape", SHAPES, ids=["1-D", "2-D"])
def test_world_size_two_equals_world_size_one(ranks, number, shape):
    name, options = CASES[number]
    x, weights = sync_ranks.batch(shape)
    layer = sync_ranks.layer(name, options, False)
    whole = sync_ranks.measure(layer, x, weights, CLEAN)
    parameters = len(list(layer.parameters()))
    for index in range(2):
        rows = [2 * index, 2 * index + 1, CLEAN + 2 * index, CLEAN + 2 * index + 1]
        measured = ranks[index][number, len(shape)]
        for part, expected in zip(measured[:2], whole[:2], strict=True):
            torch.testing.assert_close(part, expected[rows], rtol=0, atol=1e-10)
        for part, expected in zip(
            measured[2 + parameters :], whole[2 + parameters :], strict=True
        ):
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-10)
    for place in range(2, 2 + parameters):  # what DDP would add up
        total = sum(ranks[index][number, len(shape)][place] for index in range(2))
        torch.testing.assert_close(total, whole[place], rtol=0, atol=1e-10)
