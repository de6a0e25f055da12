"""Brackets of samples in a report: the staircase by hand, the page, and damaged records."""

import pytest

from advnorm.records import PlantedTest, summarize_radii
from advnorm.report import write
from advnorm.report.brackets import bracket_panels, run_brackets, staircase
from advnorm.report.groups import load_groups

RADII = ((0.0, 0.0), (0.1, 0.3), (0.2, 0.25), (0.0, None))


def bracketed(maker, name="a"):
    run = maker.run(name)
    numbers = list(range(4))
    result = maker.tested(
        run, "radii", labels=numbers, predictions=[9, 1, 2, 3], eps=0.2, radii=RADII
    )
    planted = PlantedTest(
        attacks=("pgd-5",),
        solved=18,
        missed=2,
        inner_points=9,
        random_points=9,
        passes=1,
    )
    update = {"radii": summarize_radii(RADII, diameter=1.0), "planted": planted}
    run.write_result(result.model_copy(update=update))
    return run


def test_a_staircase_falls_by_one_sample_at_each_radius():
    assert staircase([0.3, 0.1], beyond=2, n=4, largest=0.5) == (
        *((0.0, 1.0), (0.1, 1.0), (0.1, 0.75), (0.3, 0.75), (0.3, 0.5), (0.5, 0.5)),
    )


def test_brackets_are_those_of_the_verdicts(maker):
    (brackets,) = run_brackets(load_groups([bracketed(maker)]))
    rows = [(each.certified, each.broken) for each in brackets.samples]
    assert rows == list(RADII) and brackets.summary.unbroken == 1
    (panel,) = bracket_panels([brackets], "b")
    assert "radius" in str(panel)


def test_the_page_shows_medians_samples_and_the_planted_test(maker, tmp_path):
    run = bracketed(maker)
    text = write([run], tmp_path / "report.html").read_text()
    assert "Brackets of single samples" in text and "never" in text
    assert "attacks find 90.0%" in text and 'id="brackets-table"' in text


def test_a_page_without_radii_has_no_brackets(maker, tmp_path):
    run = maker.run("a")
    maker.tested(run, "pgd-10", labels=[0], predictions=[0], eps=0.2)
    text = write([run], tmp_path / "report.html").read_text()
    assert "brackets-table" not in text and "Planted tests" not in text


@pytest.mark.parametrize("radius", [float("inf"), float("nan")])
def test_radii_of_a_damaged_record_are_not_drawn(maker, radius):
    run = bracketed(maker)
    key = next(iter(run.results())).key
    damaged = run.verdicts(key).model_copy(update={"radii": ((radius, radius),) * 4})
    run.write_verdicts(key, damaged)
    (brackets,) = run_brackets(load_groups([run]))
    assert [(b.certified, b.broken) for b in brackets.samples] == [(0.0, None)] * 4
    assert bracket_panels([brackets], "b")
