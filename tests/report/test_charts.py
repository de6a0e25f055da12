"""Charts: places by hand, text that is safe, and the scripts' numbers against Python's."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node import evaluate, needs_node

from advnorm.report import charts
from advnorm.report.charts import (
    Axis,
    Chart,
    ChartLine,
    ChartMark,
    count_axis,
    decade_axis,
    draw,
    round_ticks,
)
from advnorm.report.styles import STYLES

AXIS = Axis("x", 0.0, 10.0, ((0.0, "0"), (10.0, "10")))


def drawn(*, marks=(), lines=(), x=AXIS, y=AXIS, zoomable=False):
    return str(draw(Chart("t", "a", x, y, tuple(lines), tuple(marks), zoomable), "p").svg)


def test_a_mark_is_where_its_numbers_say():
    mark = ChartMark(
        5, 2.5, "said", STYLES[0], y_interval=(2.5, 5.0), x_interval=(4.0, 5.0)
    )
    text = drawn(marks=[mark])
    width, height = charts.WIDTH - 48 - 22, charts.HEIGHT - 14 - 46
    place = f"translate({48 + width / 2:.1f} {14 + 0.75 * height:.1f})"
    assert place in text and 'data-text="said"' in text
    assert f"M-{width / 10:.1f} 0H0.0M0 0.0V-{height / 4:.1f}" in text


def test_a_logarithmic_axis_has_equal_ratios_at_equal_distances():
    axis = Axis("x", 1.0, 100.0, (), log=True)
    assert [axis.share(value) for value in (1, 10, 100)] == [0, 0.5, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e308])
def test_what_is_no_number_is_a_gap(bad):
    mark = ChartMark(bad, 1, "said", STYLES[0])
    line = ChartLine(((0, 1), (1, bad), (2, 3), (3, 4)), "#000")
    text = drawn(marks=[mark], lines=[line])
    assert "said" not in text and "nan" not in text and "inf" not in text
    (path,) = re.findall(r'class="line" d="([^"]*)"', text)
    assert path.count("M") == 2 and path.count("L") == 1


def test_hostile_text_stays_text():
    evil = '"><script>\x1b\u202e'
    mark = ChartMark(1, 1, evil, STYLES[0], key=evil, note=evil)
    text = drawn(
        marks=[mark],
        lines=[ChartLine(((0, 0),), "#000", key=evil)],
        x=Axis(evil, 0, 1, ((0, evil),)),
    )
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "\\x1b" in text


def test_long_lines_are_thinned_and_keep_their_end():
    points = tuple((float(i) / 100, 1.0) for i in range(1000))
    (path,) = re.findall(
        r'class="line" d="([^"]*)"', drawn(lines=[ChartLine(points, "#000")])
    )
    assert path.count("L") <= charts.MOST_POINTS
    end = 48 + (charts.WIDTH - 70) * 0.999
    assert path.endswith(f"L{end:.1f} {14 + 0.9 * (charts.HEIGHT - 60):.1f}")


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 10))
def test_ticks_are_round_and_inside(low, width, count):
    high = low + width
    ticks = round_ticks(low, high, count)
    assert len(ticks) <= 2 * count + 3
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert all(low - slack <= tick <= high + slack for tick in ticks)


def test_labels_of_ticks_do_not_overlap():
    radii = (0, 0.002, 0.01, 0.05, 0.1)
    svg = drawn(x=Axis("eps", 0, 0.1, tuple((eps, f"{eps:g}") for eps in radii)))
    labels = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="middle">([\d.]+)<', svg)
    assert [text for _, text in labels] == ["0", "0.01", "0.05", "0.1"]
    assert svg.partition("</g>")[0].count('class="grid"') == len(radii)


def test_epochs_are_whole_and_a_narrow_range_has_ticks():
    assert [text for _, text in count_axis("epoch", [1, 2, 3]).ticks] == ["1", "2", "3"]
    assert len(decade_axis("seconds", [0.34]).ticks) >= 3


@needs_node
def test_the_scripts_ticks_are_those_of_python():
    ranges = [
        (0, 12, 6),
        (0.1, 0.5, 4),
        (-3, 7, 5),
        (3, 3, 5),
        (17.3, 17.9, 6),
        (0, 399, 6),
    ]
    ranges += [(0, 10**k, 6) for k in range(-6, 7)]
    given_ = evaluate("values.map(([a, b, c]) => roundTicks(a, b, c))", ranges)
    assert given_ == [round_ticks(*each) for each in ranges]


@needs_node
def test_a_zoom_stays_inside_the_whole_axis():
    steps = [
        ([0, 100], 2, 0),
        ([0, 50], 1, -0.5),
        ([25, 75], 1, 0.5),
        ([25, 75], 0.5, 0),
        ([90, 100], 0.25, 0),
    ]
    code = "values.map(([range, factor, shift]) => zoomed(range, [0, 100], factor, shift))"
    assert evaluate(code, steps) == [[25, 75], [0, 50], [50, 100], [0, 100], [60, 100]]


@needs_node
def test_keys_of_a_group_and_its_runs_are_related():
    pairs = [["a", "a"], ["a", "a\tr"], ["a\tr", "a"], ["a\tr", "a\ts"], ["a", "ab"]]
    code = "values.map(([key, other]) => related(key, other))"
    assert evaluate(code, pairs) == [True, True, True, False, False]


@needs_node
def test_rows_are_filtered_by_all_words_and_by_warnings():
    rows = [
        ["Batch · madry", "", "madry batch", [], True],
        ["Batch · madry", "", "group", [], False],
        ["Batch", "flagged", "", ["flagged"], False],
        ["Batch", "flagged", "", ["unfinished"], True],
        ["Batch", "flagged unfinished", "", ["unfinished"], False],
        ["Batch", "", "", ["flagged", "unfinished"], True],
    ]
    code = "values.map(([text, marks, words, excluded]) => rowMatches(text, marks, words, excluded))"
    assert evaluate(code, rows) == [row[-1] for row in rows]


@needs_node
def test_rows_are_sorted_as_numbers_or_as_text():
    code = """values.map(([texts, descending]) => {
      const rows = texts.map(text => ({ cells: [{ dataset: {}, textContent: text }] }));
      return sortedRows(rows, 0, descending).map(row => row.cells[0].textContent);
    })"""
    texts = [
        [["10", "9", "-1"], False],
        [["10", "9", "-1"], True],
        [["r10", "r9"], False],
        [["9.5 ± 1", "–", "9.25 ± 3", "10.1"], True],
        [["9 and more", "batch"], False],
    ]
    assert evaluate(code, texts) == [
        ["-1", "9", "10"],
        ["10", "9", "-1"],
        ["r9", "r10"],
        ["10.1", "9.5 ± 1", "9.25 ± 3", "–"],
        ["9 and more", "batch"],
    ]
