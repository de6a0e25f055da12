"""Worst case, shares by radius, waterfalls and confusions: by hand on a few samples."""

import pytest

from advnorm.records import Accuracy
from advnorm.report import write
from advnorm.report.attack_waterfall import waterfalls
from advnorm.report.confusion import MOST_CLASSES, first_confusion, outcome_rows
from advnorm.report.groups import load_groups
from advnorm.report.radius_shares import shares_of_groups
from advnorm.report.verdict_arrays import all_verdicts
from advnorm.report.worst_case import worst_case

LABELS = [0, 1, 2, 3, 4]


def attacked(maker, run, condition, eps, broken, *, certified=(), wrong=(4,), **more):
    """Write an attack that broke some samples; sample 4 is misclassified from the start."""
    by = [("fab" if s in broken else "") for s in LABELS]
    predictions = [9 if s in broken or s in wrong else s for s in LABELS]
    proofs = [s in certified for s in LABELS] if certified else ()
    return maker.tested(
        run,
        condition,
        labels=LABELS,
        predictions=predictions,
        by=by,
        certified=proofs,
        eps=eps,
        **more,
    )


def certified(maker, run, eps, sure, condition="crown"):
    robust = [s in sure for s in LABELS]
    predictions = [0, 1, 2, 3, 9]
    more = {"robust": robust, "certified": robust}
    maker.tested(run, condition, labels=LABELS, predictions=predictions, eps=eps, **more)


def test_shares_combine_all_attacks_and_certificates_of_nested_balls(maker):
    run = maker.run("a")
    attacked(maker, run, "pgd-10", 0.1, {0})
    attacked(maker, run, "standard", 0.2, {1}, certified={3})
    certified(maker, run, 0.1, {2})
    groups = load_groups([run])
    (shares,) = shares_of_groups(groups, all_verdicts(groups))
    rows = [
        (s.eps, *(round(5 * c.fraction) for c in (s.certified, s.open, s.broken)))
        for s in shares.shares
    ]
    # At 0: what is right. At 0.1: 2 and 3 (of 0.2) certified, 0 broken. At 0.2: 0 and 1.
    assert rows == [(0.0, 4, 0, 1), (0.1, 2, 1, 2), (0.2, 1, 1, 3)]
    assert shares.certificates and not shares.contradictions
    first = shares.shares[1].certified
    assert first.n == 5 and first.interval == Accuracy(correct=2, n=5).interval


def test_a_certificate_that_an_attack_contradicts_is_said_and_not_believed(maker, tmp_path):
    run = maker.run("a")
    attacked(maker, run, "pgd-10", 0.1, {0})
    certified(maker, run, 0.2, {0, 1})
    groups = load_groups([run])
    (shares,) = shares_of_groups(groups, all_verdicts(groups))
    assert shares.contradictions == 1
    assert round(5 * shares.shares[1].certified.fraction) == 1
    assert round(5 * shares.shares[1].broken.fraction) == 2
    assert "a certificate is wrong" in write([run], tmp_path / "r.html").read_text()


def test_shares_over_seeds_are_means_with_the_spread_of_seeds(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (0, 1)]
    attacked(maker, runs[0], "pgd-10", 0.1, {0, 1})
    attacked(maker, runs[1], "pgd-10", 0.1, {0, 1, 2, 3})
    groups = load_groups(runs)
    (shares,) = shares_of_groups(groups, all_verdicts(groups))
    assert shares.shares[1].broken.fractions == pytest.approx((0.6, 1.0))
    assert not shares.certificates


def test_shares_use_the_samples_that_all_records_have(maker):
    run = maker.run("a")
    attacked(maker, run, "pgd-10", 0.1, {0})
    maker.tested(
        run,
        "fgsm",
        labels=[3, 1],
        predictions=[3, 9],
        samples=[3, 1],
        by=["", "fgsm"],
        eps=0.1,
    )
    groups = load_groups([run])
    (shares,) = shares_of_groups(groups, all_verdicts(groups))
    assert shares.shares[1].broken.n == 2 and shares.shares[1].broken.fraction == 0.5


def test_the_worst_case_is_over_all_attacks_sample_by_sample(maker):
    run, other = maker.run("a"), maker.run("b", norm="group")
    headline = attacked(maker, run, "pgd-10", 0.1, {0}, flags=("doubtful",))
    attacked(maker, run, "fgsm", 0.1, {1})
    attacked(maker, run, "fgsm", 0.2, {1, 2, 3})
    certified(maker, run, 0.1, {2})
    attacked(maker, other, "pgd-10", 0.1, {0})
    groups = load_groups([run, other])
    worst = worst_case(groups, all_verdicts(groups), headline)
    assert worst.runs["a"].fractions == (2 / 5,) and worst.runs["b"].fractions == (3 / 5,)
    assert worst.runs["a"].flags == ("doubtful",) and worst.attacks == ""
    assert worst.runs["a"].notes == ("worst case over fgsm, pgd-10",)


def test_the_worst_case_is_over_seeds_that_draw_samples_of_one_data_set(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in range(3)]
    names = ("digits[seed=0]", "digits[seed=1]", "mnist")
    for seed, (run, data) in enumerate(zip(runs, names, strict=True)):
        predictions = [9] * seed + LABELS[seed:]
        maker.tested(
            run, "pgd-10", labels=LABELS, predictions=predictions, eps=0.1, data=data
        )
    groups = load_groups(runs)
    headline = groups[0].members[0].results["pgd-10_linf_0.1"]
    worst = worst_case(groups, all_verdicts(groups), headline)
    assert worst.groups[groups[0].label].fractions == (1.0, 4 / 5)


def test_the_worst_case_is_the_first_column_of_accuracies(maker, tmp_path):
    runs = [maker.run("a"), maker.run("b", norm="group")]
    for run, broken in zip(runs, ({0}, {0, 1}), strict=True):
        attacked(maker, run, "pgd-10", 0.1, broken)
        attacked(maker, run, "fgsm", 0.1, {2})
    text = write(runs, tmp_path / "r.html").read_text()
    table = text.partition('id="groups-table"')[2].partition("</table>")[0]
    assert table.index("worst case") < table.index(">fgsm<")
    assert "<strong>40.0%" in table  # b has 20.0%, and the best is bold
    assert "(fgsm, pgd-10)" in text


def test_a_waterfall_is_what_each_attack_took(maker):
    run = maker.run("a")
    settings = {f"{name}.restarts": 1 for name in ("apgd-ce", "fab", "square")}
    maker.tested(
        run,
        "standard",
        labels=LABELS,
        predictions=[9, 9, 9, 3, 9],
        by=["square", "apgd-ce", "square", "", ""],
        eps=0.1,
        settings=settings,
    )
    groups = load_groups([run])
    (fall,) = waterfalls(groups, all_verdicts(groups), None)
    assert [(s.name, s.taken, s.remaining.correct) for s in fall.steps] == [
        ("before any attack", 1, 4),
        ("apgd-ce", 1, 3),
        ("fab", 0, 3),
        ("square", 2, 1),
    ]
    assert fall.steps[-1].remaining == run.results()[0].accuracy


def test_one_attack_has_no_waterfall(maker):
    run = maker.run("a")
    attacked(maker, run, "pgd-10", 0.1, {0})
    groups = load_groups([run])
    assert waterfalls(groups, all_verdicts(groups), None) == []


def test_confusions_and_outcomes_by_hand(maker):
    run = maker.run("a")
    maker.tested(run, "clean", labels=LABELS, predictions=LABELS)
    attacked(maker, run, "pgd-10", 0.1, {0, 1}, certified={2})
    groups = load_groups([run])
    verdicts = all_verdicts(groups)
    confusion = first_confusion(groups, verdicts, "pgd-10_linf_0.1")
    assert confusion.title == "a, pgd-10, L∞ 0.1"
    assert confusion.counts == {(0, 9): 1, (1, 9): 1, (2, 2): 1, (3, 3): 1, (4, 9): 1}
    assert confusion.classes == (0, 1, 2, 3, 4, 9)
    assert confusion.most_frequent == [(0, 9, 1), (1, 9, 1), (4, 9, 1)]
    rows = {row.condition: row.counts for row in outcome_rows(groups, verdicts)}
    assert rows == {"clean": (0, 0, 5, 0, 0), "pgd-10, L∞ 0.1": (1, 2, 1, 1, 0)}


def test_many_classes_have_a_list_of_confusions(maker, tmp_path):
    run, many = maker.run("a"), list(range(MOST_CLASSES + 1))
    maker.tested(run, "clean", labels=many, predictions=[0, *many[:-1]])
    groups = load_groups([run])
    assert first_confusion(groups, all_verdicts(groups), None).classes == ()
    assert "Most frequent confusions: a, clean" in write([run], tmp_path / "r").read_text()
