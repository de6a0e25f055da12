"""Every figure of docs/results is of the kept records, small, readable, and on its page."""

import json
import re
import shutil
import sys
from xml.etree import ElementTree

import pytest
from page_blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import figures
from result_figures.drawing import svg

RESULTS = ROOT / "docs" / "results"
FILES = figures.files(RESULTS)
SVG = "{http://www.w3.org/2000/svg}"
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def test_all_figures_are_current():
    assert not figures.stale(RESULTS), "python benchmarks/figures.py draws them again"


def test_a_changed_record_or_a_file_of_no_drawing_is_seen(tmp_path):
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    record = copy / "sitawarin2021" / "figure5-reduced.json"
    values = json.loads(record.read_text())
    values["rows"]["AA"]["0.5"]["values"][0] += 0.1
    record.write_text(json.dumps(values))
    (copy / "figures" / "other.svg").write_text("<svg></svg>")
    outdated = figures.stale(copy)
    assert [path.name for path in outdated] == ["other.svg", "sitawarin2021-gamma.svg"]
    for path, drawing in outdated.items():
        figures.draw(path, drawing)
    assert not figures.stale(copy)


def test_a_figure_is_drawn_the_same_way_twice():
    path = RESULTS / "figures" / "certified-mnist.svg"
    assert svg(FILES[path]) == svg(FILES[path])


@each_file
def test_a_figure_is_small_and_its_text_is_text(path):
    root = ElementTree.parse(path).getroot()
    assert path.stat().st_size < 60_000
    assert root.findtext(f"{SVG}title") == FILES[path].title
    assert len(root.findtext(f"{SVG}desc")) > 50
    assert len(list(root.iter(f"{SVG}text"))) > 5
    assert "currentColor" in path.read_text()


@each_file
def test_a_figure_fits_a_phone(path):
    """Letters are of 8.5 pixels or more where the figure is 360 pixels wide."""
    root = ElementTree.parse(path).getroot()
    width = float(root.get("viewBox").split()[2])
    sizes = re.findall(r"font(?:-size)?: (?:\w+ )?([\d.]+)px", path.read_text())
    assert sizes and min(map(float, sizes)) * 360 / width > 8.5


@each_file
def test_a_figure_is_on_its_page_with_words_for_it(path):
    page = FILES[path].page
    page = ROOT / page if page == "README.md" else RESULTS / page
    link = re.escape(str(path.relative_to(page.parent)))
    text = page.read_text()
    alt = re.search(rf"!\[([^\]]+)\]\({link}\)", text) or re.search(
        rf'<(?:img|source)[^>]*"{link}".*?alt="([^"]+)"', text, re.DOTALL
    )
    assert alt and len(alt[1]) > 50
