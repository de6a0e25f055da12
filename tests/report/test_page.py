"""The page as text: complete, escaped, self-contained, the same each time."""

import re
import subprocess
import sys

import pytest
from reading import drawings, page

from advnorm.records import Accuracy, Run
from advnorm.report import write
from advnorm.report.accuracy_curves import _step_lines, step_labels
from advnorm.report.groups import load_groups
from advnorm.report.styles import headline_key

EPS = 8 / 255


@pytest.fixture(scope="module")
def whole(study, tmp_path_factory):
    return page(study, tmp_path_factory.mktemp("page"))


def test_every_section_is_there(whole):
    headings = re.findall(r"<h2[^>]*>([^<]*)</h2>", whole.source)
    assert headings == [
        "Overview",
        "Samples",
        "Radii",
        "Compare",
        "Training",
        "Provenance",
    ]
    anchors = re.findall(r'<li><a href="#(\w+)">', whole.source)
    assert anchors == re.findall(r'<section id="(\w+)"', whole.source)
    for heading in (
        *("Warnings", "Clean against robust", "Cost", "Accuracy against the radius"),
        *("Images", "Recipes, digests and commands", "Environment"),
    ):
        assert heading in whole.text
    assert (
        "8 runs in 4 groups" in whole.text
        and "Example CPU @ 2.00GHz, 4 cores" in whole.text
    )
    assert whole.count("svg") == 2 + 3 + 2 and whole.count("img") == 4 * 8 * 3
    assert all(attrs.get("alt") for tag, attrs in whole.tags if tag == "img")
    assert "under pgd-50, L∞ 8/255" in whole.text and "difference × 10" in whole.text


def test_numbers_of_the_table_are_those_of_the_records(maker, tmp_path):
    for seed, correct in ((0, 700), (1, 720)):
        maker.result(maker.run(f"b{seed}", seed=seed), "clean", correct)
    maker.result(maker.run("g", norm="group"), "clean", 713)
    read = page([Run.open(maker.folder / name) for name in ("b0", "b1", "g")], tmp_path)
    assert "71.0% ± 1.0" in read.text and "71.3% [68.4, 74.0]" in read.text
    assert "n = 1000" in read.text


def test_nothing_on_the_page_points_outside(whole):
    for _, attrs in whole.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            assert not attrs.get(name) or attrs[name].startswith(("#", "data:"))
        assert "url(" not in attrs.get("style", "") or "url(#" in attrs["style"]


def test_every_id_is_used_once_and_every_reference_has_its_id(whole):
    ids = whole.ids()
    assert len(ids) == len(set(ids))
    for _, attrs in whole.tags:
        for value in attrs.values():
            for target in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert target in ids
        for name in ("href", "xlink:href"):
            if (attrs.get(name) or "").startswith("#"):
                assert attrs[name][1:] in ids


def test_names_are_escaped_everywhere(maker, tmp_path):
    evil = "<script>alert(1)<"
    run = maker.run(
        evil, norm=evil, objective=evil, recipe={"name": evil, "data": {"name": evil}}
    )
    other = maker.run("other", norm='"><img src=x>')
    for one in (run, other):
        maker.train(one, epochs=2, alarms=(f"{evil}/alarm>",))
        maker.result(one, "clean", 900, flags=(f"{evil}/flag>",), data=evil)
        maker.result(one, "<b>$x$", 500, eps=EPS, settings={"<i>": 1})
        maker.examples(one, "<b>$x$_linf_0.03137")
    read = page([run, other], tmp_path)
    assert (tmp_path / "report.html").read_text().count("<script") == 1
    assert read.count("script") == 1 and read.count("b") == 0 and read.count("i") == 0
    assert not any(attrs.get("src") == "x" for _, attrs in read.tags)
    assert f"{evil}/flag>" in read.text and f"{evil}/alarm>" in read.text


def test_best_of_a_column_is_bold_but_never_a_flagged_one(maker, tmp_path):
    false, true, low = (maker.run(name, norm=name) for name in ("false", "true", "low"))
    maker.result(false, "clean", 990, flags=("false robustness",))
    maker.result(true, "clean", 800)
    maker.result(low, "clean", 700)
    text = write([false, true, low], tmp_path / "r.html").read_text()
    assert re.findall(r"<strong>(\d+\.\d%)", text) == ["80.0%"]
    assert "<strong>false robustness</strong> (false, clean)" in text


def test_results_that_were_not_measured_alike_are_said(maker, tmp_path):
    one, other = maker.run("a"), maker.run("b", norm="group")
    maker.result(one, "pgd-10", 500, eps=EPS, settings={"steps": 10})
    maker.result(other, "pgd-10", 50, eps=EPS, settings={"steps": 20}, n=100)
    read = page([one, other], tmp_path)
    assert "the runs were measured differently: steps is 10 or 20" in read.text
    assert "n = 100 to 1000" in read.text


def test_a_mean_over_a_part_of_the_seeds_and_a_repeated_seed_are_said(maker, tmp_path):
    done, not_yet, again = (
        maker.run("a", seed=0),
        maker.run("b", seed=1),
        maker.run("c", seed=0),
    )
    maker.result(done, "clean", 900)
    read = page([done, not_yet, again], tmp_path)
    assert "1 of 2 seeds" in read.text
    assert "not counted in the mean over seeds (c)" in read.text


def test_only_the_settings_that_differ_are_compared(maker, tmp_path):
    runs = [maker.run("a", seed=0), maker.run("b", seed=1, norm="group")]
    text = write(runs, tmp_path / "r.html").read_text()
    assert re.findall(r'<th scope="col"><code>(.*?)</code>', text) == ["norm.name"]


def test_a_run_without_anything_says_what_would_make_it(maker, tmp_path):
    run = maker.run("bare")
    read = page([run], tmp_path)
    assert f"Not evaluated yet: bare. Run advnorm evaluate {run.path}." in read.text
    train = f"advnorm train {run.path}/recipe.yaml --resume --out {run.path}"
    assert f"No epoch is completed: bare. Run {train}." in read.text
    assert "There are no example images" in read.text
    assert read.count("svg") == 0 and read.count("img") == 0


def test_one_epoch_and_no_validation_are_said(maker, tmp_path):
    run = maker.run("short")
    maker.train(run, epochs=1, validation=False)
    read = page([run], tmp_path)
    assert "With a single epoch, a point instead of a line: short" in read.text
    assert "Without a validation accuracy: short" in read.text
    assert read.count("svg") == 1


def test_a_loss_that_is_no_number_is_drawn_around(maker, tmp_path):
    run = maker.run("nan")
    maker.train(run, epochs=3)
    last = run.epochs()[-1]
    for loss in (float("nan"), float("inf")):
        run.append_epoch(last.model_copy(update={"loss": loss, "epoch": 4}))
    maker.result(run, "clean", 0, n=0)
    maker.result(run, "pgd-10", 0, n=0, eps=EPS)
    assert page([run], tmp_path).count("svg") == 4


def test_hundreds_of_runs_have_a_page_of_bounded_figures(maker, tmp_path):
    runs = []
    for i in range(120):
        run = maker.run(f"r{i}", norm=f"n{i // 2}", seed=i % 2)
        maker.train(run, epochs=2)
        maker.result(run, "clean", 800)
        maker.result(run, "pgd-10", 300 + i, eps=EPS)
        runs.append(run)
    read = page(runs, tmp_path)
    assert "the 8 of 60 groups with the highest accuracy under attack" in read.text
    assert "20 more recipes are in their run folders" in read.text
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_curves_are_drawn_for_a_limited_number_of_runs(maker, tmp_path):
    runs = [maker.run(f"r{seed}", seed=seed) for seed in range(45)]
    for run in runs:
        maker.train(run, epochs=2)
    read = page(runs, tmp_path)
    assert "The first 40 of 45 runs are drawn" in read.text
    labels = [attrs["aria-label"] for _, attrs in read.tags if attrs.get("role") == "img"]
    assert len(labels) == 3 and all(label.endswith("and 28 more") for label in labels)


def test_the_same_records_give_the_same_bytes(maker, tmp_path):
    runs = maker.study()[:2]
    first = write(runs, tmp_path / "new" / "a.html")
    second = write(runs, tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == ["a.html"]


@pytest.mark.parametrize(
    "trained, key", [("8/255", "slow_linf_0.03137"), (0.5, "slow_linf_0.06275")]
)
def test_headline_is_the_strongest_attack_at_the_recipes_radius_or_the_largest(
    maker, trained, key
):
    run = maker.run("a", recipe={"threat": {"eps": trained}})
    other = maker.run("b", norm="group", recipe={"threat": {"eps": trained}})
    for one in (run, other):
        for eps in (EPS, 2 * EPS):
            maker.result(one, "fast", 600, eps=eps)
            maker.result(one, "slow", 500, eps=eps)
    maker.result(run, "only-here", 100, eps=4 * EPS)
    assert headline_key(load_groups([run, other])) == key


def test_no_run_is_refused_and_nothing_written(tmp_path):
    with pytest.raises(ValueError, match="no run to report on"):
        write([], tmp_path / "r.html")
    assert not list(tmp_path.iterdir())


def test_the_report_needs_no_torch_no_display_and_no_pyplot(study, tmp_path):
    code = (
        "import sys; from pathlib import Path; from advnorm.records import Run;"
        "from advnorm.report import comparison_rows, write;"
        "assert 'matplotlib' not in sys.modules;"
        "write([Run.open(Path(sys.argv[1]))], Path(sys.argv[2]));"
        "assert 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    arguments = [str(study[0].path), str(tmp_path / "r.html")]
    subprocess.run([sys.executable, "-W", "error", "-c", code, *arguments], check=True)
    assert (tmp_path / "r.html").stat().st_size


def test_branches_of_a_mixture_norm_are_lines_points_and_headings_of_their_own(
    maker, tmp_path
):
    runs = maker.branches()
    maker.examples(runs[1], "pgd-10_linf_0.03137@worst")
    read = page(runs, tmp_path)
    said = " ".join(read.text.replace("255", "255 ").split())
    for branch in ("adversarial branch", "clean branch", "worst branch"):
        heads = ("clean", "pgd-10L∞ 4/255", "pgd-10L∞ 8/255")
        assert all(f"{head} {branch}n = 100" in said for head in heads)
    drawn = drawings(read)
    assert drawn["pgd-10, L∞"].split("; ") == [
        "batch · madry · cnn: 80.0% at 0, 60.0% at 4/255, 40.0% at 8/255",
        "mixture · madry · cnn, adversarial branch: 70.0% at 0, 50.0% at 4/255, 30.0% at 8/255",
        "mixture · madry · cnn, clean branch: 95.0% at 0, 1.0% at 4/255, 1.0% at 8/255",
        "mixture · madry · cnn, worst branch: 60.0% at 0, 40.0% at 4/255, 20.0% at 8/255",
    ]
    assert drawn["Clean against robust accuracy"].split("; ") == [
        "plain 80.0% clean, 40.0% robust",
        "mixed, adversarial branch 70.0% clean, 30.0% robust",
        "mixed, clean branch 95.0% clean, 1.0% robust",
        "mixed, worst branch 60.0% clean, 20.0% robust",
    ]
    assert "mixed, pgd-10 L∞ 8/255, worst branch" in read.text
    assert "dashed is adversarial, dotted is clean" in read.text
    assert "Warnings" not in read.text


def test_pages_without_a_mixture_norm_do_not_speak_of_branches(whole):
    assert "branch" not in whole.text


def test_other_data_have_panels_and_headings_of_their_own(maker, tmp_path):
    run = maker.run("a")
    for data, level in (("digits", 80), ("mnist-c:fog", 60)):
        other = data != "digits"
        maker.result(run, "clean", level, n=100, data=data, other=other)
        maker.result(run, "pgd-10", level // 2, n=100, eps=EPS, data=data, other=other)
    read = page([run], tmp_path)
    drawn = drawings(read)
    assert drawn["pgd-10, L∞"].endswith("80.0% at 0, 40.0% at 8/255")
    assert drawn["pgd-10, L∞, on mnist-c:fog"].endswith("60.0% at 0, 30.0% at 8/255")
    assert drawn["Clean against robust accuracy"] == "a 80.0% clean, 40.0% robust"
    assert "on mnist-c:fogn = 100" in read.text and "Warnings" not in read.text


def test_columns_and_rows_with_other_weights_or_counts_are_warned_of(maker, tmp_path):
    one, other = maker.run("a"), maker.run("b", norm="group")
    maker.result(one, "clean", 500)
    maker.result(one, "pgd-10", 500, eps=EPS)
    maker.result(other, "clean", 50, n=100)
    maker.result(other, "pgd-10", 500, eps=EPS, weights="state-7 sha256:ff")
    text = write([one, other], tmp_path / "r.html").read_text()
    notes = re.findall(r'<li id="note-(\d)"><strong>(.*?)</strong> \((.*?)\)', text)
    assert notes == [
        ("1", "the runs were measured differently: n is 1000 or 100", "column clean"),
        (
            "2",
            "the runs were measured differently: weights is best or state",
            "column pgd-10_linf_0.03137",
        ),
        (
            "3",
            "these results were measured differently: weights is best or state, "
            "n is 100 or 1000",
            "row b",
        ),
    ]
    heads = re.findall(r'<th scope="row">.*?</th>', text)
    assert [head.count("#note-3") for head in heads[:2]] == [0, 1]


def test_the_headline_counts_a_mixture_norms_branches_as_one_run(maker):
    plain, mixture = maker.branches()
    more = maker.run("more", norm="group")
    for run in (plain, more):
        maker.result(run, "apgd", 10, eps=EPS)
    assert headline_key(load_groups([plain, mixture])) == "pgd-10_linf_0.03137"
    assert headline_key(load_groups([plain, mixture, more])) == "apgd_linf_0.03137"


def walk(*fractions, n=100):
    counts = (10, 20, 50, 100)
    return {
        count: Accuracy(correct=fraction, n=n)
        for count, fraction in zip(counts, fractions, strict=False)
    }


def test_accuracy_over_attack_steps_is_the_mean_over_seeds_by_branch(maker, tmp_path):
    first, second = maker.run("a0", seed=0), maker.run("a1", seed=1)
    mixed, plain = maker.run("m", norm="mixture"), maker.run("g", norm="group")
    name, more = "pgd-10..100", {"n": 100, "eps": EPS}
    maker.result(first, name, 30, curve=walk(60, 50, 40, 30), **more)
    maker.result(second, name, 40, curve=walk(70, 60, 40, 40), **more)
    maker.result(mixed, name, 20, curve=walk(50, 20), branch="clean", **more)
    maker.result(plain, "pgd-40", 20, **more)
    drawn = drawings(page([first, second, mixed, plain], tmp_path))
    assert drawn[f"{name}, L∞ 8/255, over steps"].split("; ") == [
        "batch · madry · cnn: 65.0% after 10, 55.0% after 20, 40.0% after 50, "
        "35.0% after 100",
        "mixture · madry · cnn, clean branch: 50.0% after 10, 20.0% after 20",
    ]
    assert [title for title in drawn if "over steps" in title] == [
        f"{name}, L∞ 8/255, over steps"
    ]
    assert "Accuracy over attack steps" in page([first], tmp_path).text


def test_the_band_over_attack_steps_is_the_interval_of_the_accuracy(maker):
    run = maker.run("a")
    maker.result(run, "pgd-10..20", 50, n=100, eps=EPS, curve=walk(80, 50))
    known = next(iter(_step_lines(load_groups([run]), "pgd-10..20_linf_0.03137"))).cells
    assert list(known) == [10, 20]
    assert known[20].interval == Accuracy(correct=50, n=100).interval


def test_a_page_without_a_curve_does_not_speak_of_attack_steps(whole):
    assert "over attack steps" not in whole.text


def test_flagged_points_are_marked_in_every_figure_and_described(maker, tmp_path):
    run, name, flagged = maker.run("a"), "pgd-10..20", {"flags": ("it is false",)}
    maker.result(run, "clean", 90, n=100)
    maker.result(run, name, 50, n=100, eps=EPS, curve=walk(80, 50), **flagged)
    maker.result(run, name, 70, n=100, eps=EPS / 2, curve=walk(75, 70))
    report = page([run], tmp_path)
    drawn = drawings(report)
    assert drawn["Clean against robust accuracy"].endswith("50.0% robust (flagged)")
    radius = drawn[f"{name}, L∞"]
    assert radius.endswith("90.0% at 0, 70.0% at 4/255, 50.0% (flagged) at 8/255")
    over = drawn[f"{name}, L∞ 8/255, over steps"]
    assert over.endswith("80.0% (flagged) after 10, 50.0% (flagged) after 20")
    assert "flagged" not in drawn[f"{name}, L∞ 4/255, over steps"]
    marks = [word.strip() for word in report.words]
    assert marks.count("!") == 1 + 1 + 2  # scatter, radius, steps: text of the drawings
    assert report.text.count("A ! marks a flagged point") == 3


def test_a_page_without_flags_does_not_speak_of_marks(maker, tmp_path):
    run = maker.run("a")
    maker.result(run, "clean", 90, n=100)
    maker.result(run, "pgd-10..20", 50, n=100, eps=EPS, curve=walk(80, 50))
    report = page([run], tmp_path)
    assert "!" not in [word.strip() for word in report.words]
    assert "is beside a point" not in report.text


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([10, 20, 50, 100], "10 20 50 100"),
        ([9, 10, 20, 50, 100], "9 20 50 100"),
        (
            [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000],
            "1 2 5 10 20 50 100 200 500 2000",
        ),
        ([180, 200], "180 200"),
        ([180, 199, 200], "180 200"),
        ([7], "7"),
        ([], ""),
    ],
)
def test_labels_of_step_counts_do_not_meet(counts, shown):
    assert " ".join(filter(None, step_labels(counts))) == shown
    assert len(step_labels(counts)) == len(counts)
