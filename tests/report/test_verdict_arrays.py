"""Verdicts as arrays: what became of each sample, by hand."""

import json

import pytest

from advnorm.report.verdict_arrays import OUTCOMES, load_verdicts

LABELS, PREDICTIONS = [0, 1, 2, 3], [0, 5, 6, 3]


def outcomes(run, result):
    return [OUTCOMES[code] for code in load_verdicts(run, result).outcomes]


def test_an_attack_breaks_what_was_right_and_a_certificate_covers(maker):
    run, by = maker.run("a"), ["", "", "fab", ""]
    result = maker.tested(
        run,
        "standard",
        labels=LABELS,
        predictions=PREDICTIONS,
        by=by,
        certified=[0, 0, 0, 1],
        eps=0.1,
    )
    assert outcomes(run, result) == ["robust", "misclassified", "broken", "certified"]
    arrays = load_verdicts(run, result)
    assert arrays.attacks == ("fab",) and arrays.broken_by.tolist() == [-1, -1, 0, -1]
    assert arrays.correct.sum() == result.accuracy.correct == 2
    assert arrays.correct_at_start.tolist() == [True, False, True, True]


def test_a_certificate_alone_leaves_the_rest_open(maker):
    run = maker.run("a")
    more = {"robust": [1, 0, 0, 0], "certified": [1, 0, 0, 0]}
    result = maker.tested(
        run, "crown", labels=LABELS, predictions=[0, 5, 2, 3], eps=0.1, **more
    )
    expected = ["certified", "misclassified", "not certified", "not certified"]
    assert outcomes(run, result) == expected
    assert load_verdicts(run, result).correct.sum() == result.accuracy.correct


def test_the_first_samples_of_more_verdicts_are_those_of_the_result(maker):
    run = maker.run("a")
    maker.tested(run, "clean", labels=LABELS, predictions=PREDICTIONS)
    result = maker.result(run, "clean", 1, n=2, fingerprint="print")
    assert load_verdicts(run, result).samples.tolist() == [0, 1]


@pytest.mark.parametrize(
    "correct, n, fingerprint", [(3, 5, "print"), (2, 4, "other"), (3, 4, "print")]
)
def test_verdicts_of_another_result_are_left_out(maker, correct, n, fingerprint):
    run = maker.run("a")
    maker.tested(run, "clean", labels=LABELS, predictions=PREDICTIONS)
    result = maker.result(run, "clean", correct, n=n, fingerprint=fingerprint)
    assert load_verdicts(run, result) is None


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"labels": [0, 1, 2]}, "differ in length"),
        ({"by": [""]}, "differ in length"),
        ({"certified": [True]}, "differ in length"),
        ({"samples": [0, 1, 2, 2]}, "named twice"),
        ({"samples": [0, 1, 2, -1]}, "not between"),
        ({"labels": [0, 1, 2, 10**30]}, "too large|too big"),
        ({"predictions": [0, 1, 2, 2**21]}, "not between"),
    ],
    ids=str,
)
def test_verdicts_that_cannot_be_are_named(maker, changed, why):
    run = maker.run("a")
    result = maker.tested(run, "clean", labels=LABELS, predictions=PREDICTIONS)
    path = run.path / "verdicts" / "clean.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ValueError, match=rf"clean\.json is damaged \(.*({why})"):
        load_verdicts(run, result)
