"""The number of samples of an accuracy: read with it, kept in the ledger, gathered over seeds."""

from dataclasses import replace

import pytest
from tiny_recipe import TINY

from advnorm.papers import Artefact, Job
from advnorm.papers.jobs import run_job
from advnorm.papers.numbers import (
    CLEAN,
    AnswerNumber,
    DifferenceNumber,
    EpochNumber,
    MeanNumber,
    Number,
    ResultNumber,
    TrainingMinutes,
    TransferNumber,
    sample_count,
)
from advnorm.papers.reproduce import gather
from advnorm.recipe import override
from advnorm.records import LedgerEntry, Measured, Run

FGSM = ResultNumber("fgsm", eps=0.1)
FEWER = override(
    TINY, ["evaluation={conditions: [pgd-1..2], threat: {eps: [0.1]}, samples: 16}"]
)


def run_tiny(folder, numbers, recipe=TINY, **more):
    return run_job(Job("one", recipe, numbers, **more), folder)


def test_an_accuracy_has_the_samples_that_it_is_of(tmp_path):
    expected = {
        "test": CLEAN,
        "training": EpochNumber("train"),
        "held out": EpochNumber("validation_clean"),
        "loss": EpochNumber("loss"),
        "mean": MeanNumber((CLEAN, FGSM)),
        "unlike": MeanNumber((CLEAN, EpochNumber("train"))),
        "gap": DifferenceNumber(CLEAN, FGSM),
    }
    result = run_tiny(tmp_path, expected)
    run = Run.open(tmp_path / result.run)
    assert run.result("clean").accuracy.n == 20 and run.epochs()[-1].train.n == 60
    assert result.counts == {"test": 20, "training": 60, "held out": 10, "mean": 20}
    assert set(result.numbers) == set(expected)


def test_a_step_of_a_curve_has_its_samples(tmp_path):
    result = run_tiny(tmp_path, {"one": ResultNumber("pgd-1..2", eps=0.1, steps=1)}, FEWER)
    assert result.counts == {"one": 16}


def test_answers_that_are_accuracies_have_those_that_were_asked(tmp_path):
    expected = {
        "accuracy": AnswerNumber("attacked_loss", "attacked accuracy"),
        "loss": AnswerNumber("attacked_loss", "attacked"),
        "top": AnswerNumber("top_k", "noise"),
        "dead": AnswerNumber("dead", "dead units"),
    }
    questions = {"attacked_loss": {}, "top_k": {"k": 2}, "dead": {}}
    result = run_tiny(tmp_path, expected, questions=questions, samples=14)
    assert result.counts == {"accuracy": 14, "top": 14}


def test_a_transferred_accuracy_has_its_samples(tmp_path):
    attacked = override(
        TINY, ["evaluation={conditions: [bim-2], threat: {eps: [0.1]}, samples: 12}"]
    )
    targets = {"two": override(TINY, ["norm.name=none"])}
    result = run_tiny(tmp_path, {"other": TransferNumber("two")}, attacked, targets=targets)
    assert result.counts == {"other": 12}


def ledger_entry(seed: int, n: int | None, row: str = "one") -> LedgerEntry:
    counts = {} if n is None else {"x": n}
    numbers = {"x": 50.0, "loss": 2.0}
    return LedgerEntry(
        row=row, seed=seed, fingerprint="", run=f"{row}{seed}", numbers=numbers, counts=counts,
        seconds=1.0,
    )  # fmt: skip


ENTRY = Artefact(
    "here/table1", "Tiny", lambda _: [Job("one", TINY, {}), Job("two", TINY, {})], {}
)


@pytest.mark.parametrize(
    ("counts", "n"),
    [((20,), 20), ((20, 20), 20), ((20, 30), None), ((20, None), None), ((None,), None)],
    ids=str,
)
def test_seeds_have_one_number_of_samples_or_none(counts, n):
    lines = [ledger_entry(seed, count) for seed, count in enumerate(counts)]
    record = gather(ENTRY, "full", len(counts), lines, {})
    assert record.rows["one"]["x"].n == n and record.rows["one"]["loss"].n is None


def test_a_ratio_is_no_accuracy():
    ratio = replace(ENTRY, relative_to="one")
    record = gather(ratio, "full", 1, [ledger_entry(0, 20), ledger_entry(0, 20, "two")], {})
    assert [record.rows[row]["x"].n for row in ("one", "two")] == [20, None]


def test_an_entry_without_counts_is_read():
    line = ledger_entry(0, 20).model_dump()
    del line["counts"]
    assert LedgerEntry.model_validate(line).counts == {}
    assert Measured.model_validate({"values": [50.0]}).n is None


def test_numbers_have_a_sample_count_if_all_of_them_have_it():
    assert sample_count([Number(50.0, 20), Number(60.0, 20)]) == 20
    assert sample_count([Number(50.0, 20), Number(60.0)]) is None


def test_the_minutes_of_a_run_are_those_of_its_epochs(tmp_path):
    result = run_tiny(tmp_path, {"minutes": TrainingMinutes()})
    seconds = [epoch.seconds for epoch in Run.open(tmp_path / result.run).epochs()]
    assert len(seconds) == TINY.epochs and min(seconds) > 0
    assert result.numbers["minutes"] == pytest.approx(sum(seconds) / 60)
    assert "minutes" not in result.counts
