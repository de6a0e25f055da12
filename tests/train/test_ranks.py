"""Two ranks train what one process trains."""

from functools import cache

import pytest
import rank_cases
import torch
import torch.multiprocessing as mp
from rank_cases import CASES, QUICK

from advnorm.records import Run


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return a function that starts two ranks on some cases, once each."""

    @cache
    def start(names):
        folder = tmp_path_factory.mktemp("ranks")
        mp.spawn(rank_cases.rank, args=(names, str(folder)), nprocs=2)
        return folder

    return start


@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_equal_one_process(pair, tmp_path, name):
    same(pair(tuple(QUICK)), tmp_path, name)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_two_ranks_equal_one_process_everywhere(pair, tmp_path, name):
    same(pair(tuple(name for name in CASES if name not in QUICK)), tmp_path, name)


def same(pair, tmp_path, name):
    """Twenty steps in float64, to 1e-10: every objective, batch-free and synced norms."""
    run = Run.open(pair / name)
    whole, epochs = rank_cases.trained(CASES[name], tmp_path / "run")
    assert run.environment().ranks == 2 and run.epochs()[-1].step == 20
    found = rank_cases.tensors(run)
    assert found.keys() == whole.keys()
    for key, value in whole.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-10, msg=key)
    for mine, theirs in zip(run.epochs(), epochs, strict=True):
        assert mine.train.correct == theirs["train"]["correct"]
        assert mine.train.n == theirs["train"]["n"]
        assert mine.loss == pytest.approx(theirs["loss"], abs=1e-10)
        assert mine.parts == pytest.approx(theirs["parts"], abs=1e-10)
        assert mine.model_dump(include={"validation_robust"}) == {
            "validation_robust": theirs["validation_robust"]
        }
