"""Diagnoses on the page: runs side by side, families in the same axes, pictures."""

import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from advnorm.records import Diagnosis, MonitoredStep, Panel, Picture, Run, Series
from advnorm.report import write
from advnorm.report.diagnoses import diverging, picture_url, question_sections
from advnorm.report.diagnosis_panels import MOST_POINTS, can_overlay
from advnorm.report.groups import load_groups
from advnorm.report.styles import STYLES


def answer(question="sharp", *, numbers=None, settings=None, **panel):
    panel = {"kind": "lines", "title": "Sharpness", "x": "step", "y": "size"} | panel
    return Diagnosis(
        question=question,
        source="paper2020 Fig. 1",
        reading="Higher is <sharper>.",
        numbers=numbers or {},
        settings=settings or {"n": 10},
        panels=(Panel(**panel),),
    )


def line(*values, name="a", faint=False):
    return Series(name=name, x=tuple(range(1, len(values) + 1)), y=values, faint=faint)


def looked(runs):
    groups = load_groups(runs)
    styles = {g.label: style for g, style in zip(groups, STYLES, strict=False)}
    return question_sections(groups, styles, "why")


def test_norms_of_one_family_share_axes_in_their_own_colours(maker):
    runs = [
        maker.run(f"{norm}-{objective}", norm=norm, objective=objective)
        for objective in ("pgd", "ibp")
        for norm in ("batch", "none")
    ]
    for start, run in enumerate(runs):
        run.write_diagnosis(answer(series=[line(start, 2.0)]))
    (topic,) = looked(runs)
    assert [panel.title for panel in topic.panels] == [
        "Sharpness: pgd · cnn",
        "Sharpness: ibp · cnn",
    ]
    first, second = (panel.svg for panel in topic.panels)
    assert STYLES[0].colour in first and STYLES[1].colour in first
    assert STYLES[0].colour not in second and STYLES[2].colour in second
    assert "batch · pgd · cnn: a 2" in topic.panels[0].alt


def test_clouds_and_many_lines_are_drawn_run_by_run(maker):
    runs = [maker.run(norm, norm=norm) for norm in ("batch", "none")]
    for start, run in enumerate(runs):
        run.write_diagnosis(answer("cloud", kind="points", series=[line(start, 2.0)]))
        many = [line(start, 2.0, name=str(i)) for i in range(6)]
        run.write_diagnosis(answer("many", series=many))
    cloud, many = looked(runs)
    names = ["Sharpness: batch · madry · cnn", "Sharpness: none · madry · cnn"]
    assert [panel.title for panel in cloud.panels] == names
    assert [panel.title for panel in many.panels] == names
    assert can_overlay([Panel(kind="lines", title="", series=[line(1.0)])])
    assert not can_overlay([Panel(kind="points", title="", series=[line(1.0)])])


def test_numbers_are_means_over_seeds(maker):
    for seed, value in ((0, 1.0), (1, 3.0)):
        run = maker.run(f"s{seed}", seed=seed)
        run.write_diagnosis(answer(numbers={"size": value}, series=[line(value)]))
    (topic,) = looked([Run.open(maker.folder / name) for name in ("s0", "s1")])
    (group,) = topic.answers
    assert group.cells(topic.numbers) == ["2 ± 1"]  # deviation sqrt(2) over sqrt(2)


def test_other_settings_are_said(maker):
    runs = [maker.run(norm, norm=norm) for norm in ("batch", "none")]
    for n, run in enumerate(runs):
        run.write_diagnosis(answer(settings={"n": n}, series=[line(1.0)]))
    assert looked(runs)[0].settings == "n 0 or 1 (settings differ: compare with care)"


def test_what_was_watched_comes_first_and_does_not_part_a_group(maker):
    watched = {"monitor": {"questions": ["gradient_norm"], "every": 3}}
    runs = [maker.run("a", seed=0, recipe=watched), maker.run("b", seed=1)]
    runs[0].append_monitored(
        MonitoredStep(step=1, epoch=0.0, numbers={"gradient_norm": 2.0})
    )
    runs[0].write_diagnosis(answer(series=[line(1.0)]))
    assert len(load_groups(runs)) == 1
    questions = [topic.question for topic in looked(runs)]
    assert questions == ["gradient_norm_over_training", "sharp"]


def test_what_is_the_same_for_all_runs_is_shown_once(maker):
    runs = [maker.run(norm, norm=norm) for norm in ("batch", "none")]
    flat = Picture(label="p", channels=(((0.0, 1.0),),))
    for run in runs:
        run.write_diagnosis(answer(numbers={"size": 1.0}, series=[line(1.0, 2.0)]))
        run.write_diagnosis(answer("maps", kind="pictures", pictures=[flat]))
    maps, sharp = looked(runs)
    assert [panel.title for panel in sharp.panels] == ["Sharpness"]
    assert [a.label for a in sharp.answers] == ["every run"]
    assert sharp.answers[0].cells(["size"]) == ["1"]
    assert [label for label, *_ in maps.galleries[0].strips] == ["every run"]
    runs[1].write_diagnosis(answer(numbers={"size": 2.0}, series=[line(1.0, 2.0)]))
    assert len(looked(runs)[1].answers) == 2


def test_many_numbers_are_rows_and_pictures_one_a_group_stand_side_by_side(maker, tmp_path):
    runs = [maker.run(norm, norm=norm) for norm in ("batch", "none")]
    for start, run in enumerate(runs):
        numbers = {f"number {i}": start + i for i in range(8)}
        run.write_diagnosis(answer(numbers=numbers, series=[line(start)]))
        one = Picture(label="map", channels=(((start, 1.0),),))
        run.write_diagnosis(answer("maps", kind="pictures", pictures=[one]))
    maps, sharp = looked(runs)
    assert sharp.tall and maps.galleries[0].single and not maps.tall
    text = write(runs, tmp_path / "r.html").read_text()
    assert '<th scope="row">number 7</th><td class="number">7</td>' in text
    assert text.count('class="gallery maps"') == 1


def test_places_that_are_no_numbers_are_named(maker):
    run = maker.run("named")
    bars = Series(name="loss", x=(0, 1), y=(1.0, 2.0))
    run.write_diagnosis(answer(kind="bars", names=("clean", "$<moved>"), series=[bars]))
    svg = looked([run])[0].panels[0].svg
    assert ">clean</text>" in svg and ">$&lt;moved&gt;</text>" in svg


def test_a_stretched_picture_uses_all_of_its_greys():
    shown = [
        picture_url(Picture(label="", channels=(((1.0, 1.5, 2.0),),), stretched=stretched))
        for stretched in (True, False)
    ]
    pixels = [
        np.asarray(Image.open(BytesIO(b64decode(a.split(",")[1])))).ravel() for a in shown
    ]
    assert [pixels[0][0], pixels[0][-1]] == [0, 255] and pixels[1][0] != 0
    level = Picture(label="", channels=(((3.0, 3.0),),), stretched=True)
    assert picture_url(level).startswith("data:image/png")


@pytest.mark.parametrize("kind", ["lines", "points", "bars"])
@pytest.mark.parametrize(
    "values", [(), (0.0, 0.0), (float("nan"), 1.0), (1e-9, 1.0), (-1.0, 0.0)]
)
def test_odd_values_are_drawn_all_the_same(maker, kind, values):
    run = maker.run("odd")
    run.write_diagnosis(answer(kind=kind, log=True, series=[line(*values)]))
    assert "<svg" in looked([run])[0].panels[0].svg


def test_long_lines_are_thinned(maker):
    run = maker.run("long")
    run.write_diagnosis(answer(series=[line(*np.sin(np.arange(9000.0)))]))
    (path,) = re.findall(
        r'<path d="([^"]*)"[^>]*stroke-width: 1.5', looked([run])[0].panels[0].svg
    )
    assert path.count("L") < MOST_POINTS + 1


def test_the_page_escapes_and_shows_each_reading(maker, tmp_path):
    run = maker.run("one")
    run.write_diagnosis(
        answer(numbers={"<b1>": 1.0}, y="$<i1>", series=[line(1.0, name="<u1>")])
    )
    flat = Picture(label="<p1>", channels=(((0.0, 1.0), (0.5, 2.0)),))
    signed = Picture(label="w", channels=(((-1.0, 1.0),),), signed=True)
    run.write_diagnosis(answer("maps", kind="pictures", pictures=[flat, signed]))
    text = write([run], tmp_path / "r.html").read_text()
    assert "Higher is &lt;sharper&gt;." in text and "paper2020 Fig. 1" in text
    for raw in ("<b1>", "<i1>", "<u1>", "<p1>"):
        assert raw not in text
    assert text.count("data:image/png") == 2 and "&lt;p1&gt;" in text


def test_a_page_without_diagnoses_has_no_empty_part(maker, tmp_path):
    text = write([maker.run("none yet")], tmp_path / "r.html").read_text()
    assert "Why it works or fails" not in text


def test_zero_is_white_and_the_ends_are_of_one_strength():
    colours = diverging(np.array([[-3.0, 0.0, 3.0]]))
    assert (colours[:, 0, 1] == 1).all()
    assert colours[2, 0, 0] > colours[0, 0, 0] and colours[0, 0, 2] > colours[2, 0, 2]
    assert (diverging(np.zeros((2, 2))) == 1).all()
