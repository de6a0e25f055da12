"""The headline: the worst case over everything that was run, by hand."""

from advnorm.records import (
    Accuracy,
    Result,
    ThreatRecord,
    Verdicts,
    headlines,
)


def result(condition, eps, robust, by, **fields):
    threat = ThreatRecord(norm=fields.pop("norm", "linf"), eps=eps)
    verdicts = Verdicts(
        samples=tuple(range(len(robust))),
        labels=(0,) * len(robust),
        predictions=(0,) * len(robust),
        robust=robust,
        by=by,
    )
    record = Result(
        condition=condition,
        kind=fields.pop("kind", "attack"),
        threat=threat,
        accuracy=verdicts.accuracy(),
        data="given",
        weights="given",
        seed=0,
        seconds=1.5,
        queries=1000,
        gradients=100,
        **fields,
    )
    return record, verdicts


WEAK = result("pgd", 0.1, (True, True, False, False), ("", "", "pgd", ""))
STRONG = result("apgd", 0.1, (True, False, True, False), ("", "apgd", "", ""))
LARGE = result("fgsm", 0.2, (True, True, True, False), ("", "", "", ""))


def test_a_sample_is_robust_only_if_nothing_broke_it():
    (worst,) = headlines([WEAK, STRONG])
    assert worst.accuracy == Accuracy(correct=1, n=4)
    assert worst.broken == {"pgd": 1, "apgd": 1} and worst.misclassified == 1
    assert str(worst).startswith("worst case at linf 0.1: 25.0%")
    assert str(worst).endswith(
        "broken by 1 misclassified, pgd 1, apgd 1 (2,000 queries, 200 gradients, 3.0 s)"
    )


def test_what_broke_a_sample_in_a_smaller_ball_counts_in_a_larger_one():
    small, large = headlines([WEAK, LARGE])
    assert small.accuracy.correct == 2 and large.accuracy.correct == 2
    assert small.conditions == ("pgd",) and large.conditions == ("pgd", "fgsm")
    assert large.broken == {"pgd": 1}


def test_other_norms_branches_and_certificates_are_not_put_together():
    other = result("pgd", 0.1, (False,) * 4, ("pgd",) * 4, norm="l2")
    clean = result("pgd", 0.1, (False,) * 4, ("pgd",) * 4, branch="clean")
    proof = result("crown", 0.1, (False,) * 4, ("",) * 4, kind="certificate")
    worst = headlines([WEAK, other, clean, proof])
    assert [each.accuracy.correct for each in worst] == [2, 0, 0]
    assert "clean branch" in str(worst[2])


def test_only_samples_that_every_attack_saw_count():
    few = result("apgd", 0.1, (True, False), ("", "apgd"))
    (worst,) = headlines([WEAK, few])
    assert worst.accuracy == Accuracy(correct=1, n=2)
