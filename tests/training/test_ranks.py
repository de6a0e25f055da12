"""Two ranks train what one process trains."""

import json
import re
import shutil
from functools import cache

import pytest
import rank_cases
import torch
import torch.multiprocessing as mp
from rank_cases import CASES, QUICK
from torch import nn
from torch.nn import functional as F

from advnorm.diagnosis import spectrum
from advnorm.draws import permutation
from advnorm.norms import batch_norms
from advnorm.recipe import override
from advnorm.records import Run
from advnorm.training import build_experiment, check_recipe, train

COSTS = {"seconds", "queries", "gradients"}
"""What a result took; ranks pass batches of other sizes."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run with two branches that one process trained, with 41 test samples."""
    out = tmp_path_factory.mktemp("whole") / "run"
    changes = ["norm.name=mixture", "objective.name=mixed", "data.test=41", "epochs=3"]
    return train(override(rank_cases.TINY, changes), out)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Return another run on the same samples."""
    changes = ["norm.name=none", "data.test=41"]
    return train(
        override(rank_cases.TINY, changes), tmp_path_factory.mktemp("other") / "other"
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory, whole, other):
    """Return a function that starts two ranks on some cases, once each."""

    @cache
    def start(names):
        folder = tmp_path_factory.mktemp("ranks")
        kind = {tuple(QUICK): "evaluated", (): "evaluated-suites"}.get(names)
        if kind:
            shutil.copytree(whole.path, folder / kind)
        if kind == "evaluated":
            shutil.copytree(other.path, folder / "other")
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
    tensors = rank_cases.tensors(run)
    assert tensors.keys() == whole.keys()
    for key, value in whole.items():
        torch.testing.assert_close(tensors[key], value, rtol=0, atol=1e-10, msg=key)
    for mine, theirs in zip(run.epochs(), epochs, strict=True):
        assert mine.train.correct == theirs["train"]["correct"]
        assert mine.train.n == theirs["train"]["n"]
        assert mine.loss == pytest.approx(theirs["loss"], abs=1e-10)
        assert mine.parts == pytest.approx(theirs["parts"], abs=1e-10)
        assert mine.model_dump(include={"validation_robust"}) == {
            "validation_robust": theirs["validation_robust"]
        }


def test_two_ranks_judge_as_one_process_on_a_set_that_does_not_divide(pair, whole):
    assert_same_evaluation(
        Run.open(pair(tuple(QUICK)) / "evaluated"), whole, rank_cases.EVALUATION
    )


@pytest.mark.slow
@pytest.mark.ci
def test_two_ranks_judge_as_one_process_by_the_standard_suite(pair, whole):
    assert_same_evaluation(
        Run.open(pair(()) / "evaluated-suites"), whole, rank_cases.SUITES
    )


def assert_same_evaluation(run, whole, changes):
    """Every sample counted exactly once, the same verdicts, the same bits of examples."""
    for folder in ("results", "verdicts", "examples"):
        shutil.rmtree(whole.path / folder, ignore_errors=True)
    rank_cases.evaluate_with(whole, changes)
    keys = [result.key for result in whole.results()]
    results = [result for result in run.results() if result.key in keys]  # it may have more
    assert keys and keys == [result.key for result in results]
    for mine, theirs in zip(results, whole.results(), strict=True):
        assert mine.model_dump(exclude=COSTS) == theirs.model_dump(exclude=COSTS)
        assert mine.accuracy.n == 41
        verdicts = run.verdicts(mine.key)
        assert verdicts == whole.verdicts(mine.key)
        assert len(set(verdicts.samples)) == 41
        ours, others = run.examples(mine.key), whole.examples(mine.key)
        assert ours.exists() == others.exists()
        assert not ours.exists() or ours.read_bytes() == others.read_bytes()


def rank_outcomes(pair):
    """Return what each rank wrote beside its runs."""
    folder = pair(tuple(QUICK))
    return [json.loads((folder / f"rank-{index}.json").read_text()) for index in (0, 1)]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("loss", "the loss is nan"),
        ("gradient", "a gradient is nan"),
        ("attack", "met a gradient that is not finite"),
    ],
)
def test_nan_on_one_rank_stops_both_before_the_same_step(pair, what, words):
    for text, steps in (finding[what] for finding in rank_outcomes(pair)):
        assert words in text and "epoch 1, step 3" in text
        assert steps == 2, "the optimizer moved after the fault"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("groups of one sample", "samples: 6, groups: 6} on each of the 2 ranks: a group"),
        (
            "one sample",
            "samples: 1, groups: 1} on each of the 2 ranks: a group has too few",
        ),
        ("parts of one sample", "12 passes by 1 at a time on each of the 2 ranks, too few"),
        ("clean images", "groups=4 does not divide the 2 clean images .* of a rank"),
        ("odd batch", "4 of 11 samples in 1 groups cannot be sharded over 2 ranks"),
    ],
)
def test_samples_that_ranks_cannot_share_are_refused_before_training(pair, name, words):
    """One process trains each of them."""
    check_recipe(override(rank_cases.TINY, rank_cases.REFUSED[name]))
    for finding in rank_outcomes(pair):
        assert re.search(words, finding["refused"][name])


def test_norms_that_ask_other_ranks_have_enough_samples(pair):
    for finding in rank_outcomes(pair):
        assert set(finding["synced"].values()) == {""}
    for name in rank_cases.SYNCED:
        assert Run.open(pair(tuple(QUICK)) / f"synced {name}").epochs()


def test_two_ranks_perturb_statistics_as_one_process(pair, whole):
    run = Run.open(pair(tuple(QUICK)) / "evaluated")
    rank_cases.perturb(whole)
    results = [result for result in whole.results() if result.statistics == "running"]
    results = [result for result in results if result.condition.startswith("statistics-")]
    assert len(results) == 2
    for theirs in results:
        mine = run.result(theirs.key)
        assert mine.model_dump(exclude=COSTS) == theirs.model_dump(exclude=COSTS)
        assert run.verdicts(mine.key) == whole.verdicts(mine.key)
        assert mine.accuracy.n == 41


def test_two_ranks_transfer_as_one_process(pair, whole, other, tmp_path):
    for name, run in (("evaluated", whole), ("other", other)):
        shutil.copytree(run.path, tmp_path / name)
    alone = rank_cases.transfer_matrices(
        [Run.open(tmp_path / name) for name in ("evaluated", "other")]
    )
    alone = json.loads(json.dumps(alone))
    assert [finding["transfer"] for finding in rank_outcomes(pair)] == [alone, alone]
    assert alone[0]["clean"][0]["n"] == 41


@pytest.mark.parametrize("name", rank_cases.WATCHED)
def test_watching_changes_no_bit_on_either_rank_and_one_of_them_writes(pair, name):
    first, second = (finding["watched"][name] for finding in rank_outcomes(pair))
    assert first == second and first["plain"] == first["watched"]
    folder = pair(tuple(QUICK))
    every = override(rank_cases.TINY, [rank_cases.WATCHED[name][1]]).monitor.every
    steps = [line.step for line in Run.open(folder / f"{name}, watched").monitored()]
    assert steps == list(range(1, 21, every))
    assert not Run.open(folder / f"{name}, plain").monitored()


def test_two_ranks_watch_all_rows_of_the_batch(pair, tmp_path):
    """With synced norms both train the same network: the numbers are one process's."""
    changes, looks = rank_cases.WATCHED["synced"]
    alone = train(override(rank_cases.TINY, [*changes, looks]), tmp_path / "run")
    lines = Run.open(pair(tuple(QUICK)) / "synced, watched").monitored()
    for mine, theirs in zip(lines, alone.monitored(), strict=True):
        assert (mine.step, mine.epoch) == (theirs.step, theirs.epoch)
        assert mine.numbers == pytest.approx(theirs.numbers, abs=1e-10)
    assert {
        "gradient_norm",
        "variance/clean",
        "wasserstein/adversarial",
    } <= mine.numbers.keys()


def first_step(name):
    """Return the model before its first step, and each rank's images and labels."""
    changes, _ = rank_cases.WATCHED[name]
    experiment = build_experiment(
        override(rank_cases.TINY, changes), root=None, device="cpu"
    )
    data = experiment.data.train
    order = permutation(len(data), experiment.recipe.seed, "order", 0)[
        : experiment.batch_size
    ]
    batch = next(
        data.batches(order, batch_size=len(order), device=experiment.device, epoch=0)
    )
    images = batch.images.double()
    return experiment.model, [(images[rank::2], batch.labels[rank::2]) for rank in (0, 1)]


def monitored_numbers(pair, name):
    """Return the numbers of the first step that two ranks watched."""
    return Run.open(pair(tuple(QUICK)) / f"{name}, watched").monitored()[0].numbers


@torch.no_grad()
def test_without_sync_each_rank_normalizes_its_rows_and_the_moments_are_of_all(pair):
    model, shards = first_step("own statistics")
    standardize = next(model.children())
    first = next(m for m in model.modules() if isinstance(m, nn.Linear))
    (norm,) = batch_norms(model)
    entered = [first(standardize(images).flatten(1)) for images, _ in shards]
    assert [len(rows) for rows in entered] == [6, 5]
    deepest = [
        (rows - rows.mean(0)) / (rows.var(0, correction=0) + norm.eps).sqrt()
        for rows in entered
    ]
    deepest = (torch.cat(deepest) * norm.weight + norm.bias).relu()
    rows, running = torch.cat(entered), (norm.running_mean, norm.running_var.sqrt())
    apart = (rows.mean(0) - running[0], rows.std(0, correction=0) - running[1])
    answers = monitored_numbers(pair, "own statistics")
    assert answers["wasserstein/clean"] == pytest.approx(
        float(sum(gap.square().sum() for gap in apart)), 1e-9
    )
    assert answers["mean/clean"] == pytest.approx(float(deepest.mean()), 1e-9)
    variance = float(deepest.var(0, correction=0).mean())
    assert answers["variance/clean"] == pytest.approx(variance, 1e-9)


def test_the_hessian_is_that_of_the_first_ranks_rows(pair):
    model, ((images, labels), _) = first_step("sharp")
    parameters = list(model.parameters())
    eigenvalues = spectrum(
        lambda: F.cross_entropy(model(images), labels), parameters, steps=200
    )
    assert monitored_numbers(pair, "sharp")["hessian"] == pytest.approx(
        eigenvalues.largest, 1e-6
    )


def test_a_hessian_that_the_first_rank_does_not_find_stops_both(pair):
    assert [finding["blunt"] for finding in rank_outcomes(pair)] == ["no eigenvalue"] * 2
