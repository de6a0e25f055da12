"""Two ranks train what one process trains."""

import shutil
from functools import cache

import pytest
import rank_cases
import torch
import torch.multiprocessing as mp
from rank_cases import CASES, QUICK

from advnorm.recipe import override
from advnorm.records import Run
from advnorm.train import train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run with two branches that one process trained, with 41 test samples."""
    out = tmp_path_factory.mktemp("whole") / "run"
    changes = ["norm.name=mixture", "objective.name=mixed", "data.test=41", "epochs=3"]
    return train(override(rank_cases.TINY, changes), out)


@pytest.fixture(scope="module")
def pair(tmp_path_factory, whole):
    """Return a function that starts two ranks on some cases, once each."""

    @cache
    def start(names):
        folder = tmp_path_factory.mktemp("ranks")
        kind = {tuple(QUICK): "judged", (): "judged-suites"}.get(names)
        if kind:
            shutil.copytree(whole.path, folder / kind)
        mp.spawn(rank_cases.rank, args=(names, str(folder)), nprocs=2)
        return folder

    return start


@pytest.mark.parametrize("name", QUICK)
def test_two_ranks_equal_one_process(pair, tmp_path, name):
    same(pair(tuple(QUICK)), tmp_path, name)


@pytest.mark.slow
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


def test_two_ranks_judge_as_one_process_on_a_set_that_does_not_divide(pair, whole):
    judges_alike(Run.open(pair(tuple(QUICK)) / "judged"), whole, rank_cases.JUDGED)


@pytest.mark.slow
@pytest.mark.ci
def test_two_ranks_judge_as_one_process_by_the_standard_suite(pair, whole):
    judges_alike(Run.open(pair(()) / "judged-suites"), whole, rank_cases.SUITES)


def judges_alike(run, whole, changes):
    """Every sample counted exactly once, the same verdicts, the same bits of examples."""
    for folder in ("results", "verdicts", "examples"):
        shutil.rmtree(whole.path / folder, ignore_errors=True)
    rank_cases.judged(whole, changes)
    keys = [result.key for result in whole.results()]
    found = [result for result in run.results() if result.key in keys]  # it may have more
    assert keys and keys == [result.key for result in found]
    for mine, theirs in zip(found, whole.results(), strict=True):
        assert mine.model_dump(exclude={"seconds"}) == theirs.model_dump(
            exclude={"seconds"}
        )
        assert mine.accuracy.n == 41
        verdicts = run.verdicts(mine.key)
        assert verdicts == whole.verdicts(mine.key)
        assert len(set(verdicts.samples)) == 41
        ours, others = run.examples(mine.key), whole.examples(mine.key)
        assert ours.exists() == others.exists()
        assert not ours.exists() or ours.read_bytes() == others.read_bytes()
