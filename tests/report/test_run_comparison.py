"""Two runs on the same samples: by hand, against scipy, on the page and as text."""

import pytest
from scipy import stats

from advnorm import cli
from advnorm.report import diff_text, write
from advnorm.report.groups import load_groups
from advnorm.report.run_comparison import paired_comparisons
from advnorm.report.verdict_arrays import all_verdicts
from advnorm.significance import holm, paired_interval


def with_right(maker, name, right, *, n=10, samples=None, **more):
    """Write a run that is right on some samples of n."""
    run = maker.run(name, norm=name, recipe=more.pop("recipe", None))
    samples = list(samples or range(n))
    labels = [s % 3 for s in samples]
    predictions = [k if s in right else 9 for s, k in zip(samples, labels, strict=True)]
    maker.tested(
        run, "clean", labels=labels, predictions=predictions, samples=samples, **more
    )
    return run


def pairs_of(*runs):
    groups = load_groups(runs)
    return paired_comparisons(groups, all_verdicts(groups), None)


def test_the_samples_that_changed_sides_are_counted_and_tested(maker):
    one = with_right(maker, "a", {0, 1, 2, 3, 4, 5, 6})
    other = with_right(maker, "b", {6, 7})
    (pair,) = pairs_of(one, other)
    assert (pair.first_only, pair.second_only, pair.both) == ((0, 1, 2, 3, 4, 5), (7,), 1)
    assert (pair.first_accuracy.correct, pair.second_accuracy.correct, pair.n) == (7, 2, 10)
    assert pair.p == pair.raw_p == pytest.approx(stats.binomtest(1, 7, 0.5).pvalue)
    assert pair.interval == paired_interval(6, 1, 10)
    assert pair.difference == 0.5 and not pair.decided


def test_only_samples_of_both_are_compared_and_the_order_does_not_matter(maker):
    one = with_right(maker, "a", {0, 1, 2}, n=6)
    other = with_right(maker, "b", {4, 1}, samples=[5, 4, 3, 2, 1, 20])
    (pair,) = pairs_of(one, other)
    assert (pair.n, pair.first_only, pair.second_only) == (5, (2,), (4,))


def test_all_pairs_of_a_page_are_corrected_together(maker):
    runs = [with_right(maker, f"r{k}", set(range(10 * k)), n=60) for k in (2, 4, 5)]
    pairs = pairs_of(*runs)
    assert len(pairs) == 3
    assert [pair.p for pair in pairs] == holm([pair.raw_p for pair in pairs])
    assert any(pair.p > pair.raw_p for pair in pairs) and any(
        pair.decided for pair in pairs
    )


def test_other_labels_data_or_no_verdicts_are_not_compared(maker):
    one = with_right(maker, "a", {1})
    data = with_right(maker, "b", {1}, data="mnist")
    bare = maker.run("c", norm="none")
    maker.result(bare, "clean", 5, n=10)
    labels = maker.run("d", norm="d")
    maker.tested(labels, "clean", labels=[5] * 10, predictions=[5] * 10)
    assert pairs_of(one, data, bare, labels) == []


def test_warnings_stand_beside_a_comparison(maker):
    one = with_right(maker, "a", {1}, flags=("it is false",))
    other = with_right(maker, "b", {2}, settings={"steps": 3})
    (pair,) = pairs_of(one, other)
    assert pair.warnings == (
        "the two were measured with different settings",
        "a: it is false",
    )


def test_a_page_marks_the_flags_of_a_pair_and_says_them_once(maker, tmp_path):
    runs = [with_right(maker, name, {1}, flags=("it is false",)) for name in "ab"]
    page = write(runs, tmp_path / "report.html").read_text()
    assert page.count("it is false") == 1
    table = page[page.index('id="pairs-table"') :].partition("</table>")[0]
    assert table.count('href="#note-1"') == 2


def test_the_text_has_recipes_tests_and_samples(maker):
    one = with_right(maker, "a", set(range(40)), n=50, recipe={"epochs": 3})
    other = with_right(maker, "b", {1, 49}, n=50, recipe={"epochs": 4})
    lines = diff_text(one, other).splitlines()
    assert lines[:2] == ["A: a", "B: b"]
    assert "  norm.name: A a, B b" in lines and "  epochs: A 3, B 4" in lines
    assert "clean (n=50):" in lines
    assert "  A 80.0% [67.0%, 88.8%] n=50" in lines
    low, high = paired_interval(39, 1, 50)
    said = f"  A - B in points: +76.0 [{100 * low:+.1f}, {100 * high:+.1f}]"
    assert said in lines
    p = stats.binomtest(1, 40, 0.5).pvalue
    assert f"  p = {p:.2g} (decided at 5%), {p:.2g} uncorrected" in lines
    only = [0, *range(2, 21)]
    assert (
        f"  right in A only: 39 samples: {', '.join(map(str, only))} and 19 more" in lines
    )
    assert "  right in B only: 1 sample: 49" in lines
    assert "McNemar" in lines[-1] and "Tango" in lines[-1]


def test_seeds_are_a_difference_of_two_runs(maker):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in (3, 4)]
    text = diff_text(*runs)
    assert "  seed: A 3, B 4" in text and "no verdicts on the same samples" in text


def test_a_run_is_not_compared_with_itself(maker):
    run = maker.run("a")
    with pytest.raises(ValueError, match="is named twice"):
        diff_text(run, run)


def report(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["advnorm", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0


def test_the_command_prints_and_writes_a_page_only_where_it_is_asked_to(
    maker, tmp_path, monkeypatch, capsys
):
    one, other = with_right(maker, "a", {1, 2}), with_right(maker, "b", {2})
    monkeypatch.chdir(tmp_path)
    assert report(monkeypatch, one.path, other.path, "--diff") == 0
    assert "right in A only: 1 sample: 1" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.html"))
    assert report(monkeypatch, one.path, other.path, "--diff", "--out", "d.html") == 0
    assert "right in A only" in capsys.readouterr().out
    assert (tmp_path / "d.html").exists()
    assert report(monkeypatch, one.path, "--diff") == 2
    assert "advnorm report A B --diff" in capsys.readouterr().err


def test_the_page_has_every_pair_and_the_method(maker, tmp_path):
    runs = [with_right(maker, f"r{k}", set(range(10 * k)), n=60) for k in (2, 4, 5)]
    text = write(runs, tmp_path / "r.html").read_text()
    assert text.count("data-first=") == 3
    assert "McNemar" in text and "Tango" in text and "Holm" in text


def test_a_page_compares_a_limited_number_of_runs(maker, tmp_path):
    runs = [with_right(maker, f"r{k}", {k}, n=12) for k in range(10)]
    text = write(runs, tmp_path / "r.html").read_text()
    assert text.count("data-first=") == 28
    assert "The first 8 of 10 runs are compared" in text
