"""The drawings of docs/figures: with words, readable, and true to the import arrows."""

import re
import sys
from xml.etree import ElementTree

import pytest
from page_blocks import PAGES, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from test_layering import MAY_IMPORT

FIGURES = ROOT / "docs" / "figures"
SVG = "{http://www.w3.org/2000/svg}"
each_drawing = pytest.mark.parametrize(
    "path", sorted(FIGURES.glob("*.svg")), ids=lambda p: p.stem
)


@each_drawing
def test_a_drawing_has_words_and_both_palettes(path):
    root, text = ElementTree.parse(path).getroot(), path.read_text()
    assert len(root.findtext(f"{SVG}title")) > 10
    assert len(root.findtext(f"{SVG}desc")) > 50
    assert "prefers-color-scheme:dark" in text
    assert float(root.get("viewBox").split()[2]) == 360
    assert path.stat().st_size < 20_000


@each_drawing
def test_a_drawing_is_on_a_page_with_words_for_it(path):
    shown = rf"!\[([^\]]{{30,}})\]\(\S*figures/{path.name}\)"
    assert any(re.search(shown, page.read_text()) for page in PAGES)


def test_parts_import_only_what_is_drawn_below_them():
    texts = ElementTree.parse(FIGURES / "parts.svg").iter(f"{SVG}text")
    rows = {
        t.text: float(t.get("y")) for t in texts if "part" in t.get("class", "").split()
    }
    packages = {p.parent.name for p in (ROOT / "advnorm").glob("*/__init__.py")}
    assert packages <= set(rows)
    for part, allowed in MAY_IMPORT.items():
        higher = {
            other
            for other in allowed
            if other in rows and rows[other] <= rows.get(part, -1)
        }
        assert not higher, f"{part} may import {higher}, which are not drawn below it"
