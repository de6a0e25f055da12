"""Links between pages lead somewhere, and so do the names that the prose mentions."""

import re
from functools import reduce
from importlib import import_module

import pytest
from page_blocks import PROSE, ROOT, anchors, inline_code, links, name_of

HERE = pytest.mark.parametrize("page", PROSE, ids=name_of)
FILES = re.compile(r"(?:advnorm|tests|benchmarks|examples|docs)/[\w/.-]+\.(?:py|md|json)")


@HERE
def test_links_lead_to_files_and_headings(page):
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    assert not broken


@HERE
def test_files_that_the_prose_names_exist(page):
    named = {path for code in inline_code(page) for path in FILES.findall(code)}
    assert not [path for path in named if not (ROOT / path).exists()]


@HERE
def test_python_names_that_the_prose_mentions_exist(page):
    names = [re.match(r"advnorm((?:\.[A-Za-z]\w*)+)", code) for code in inline_code(page)]
    for name in names:
        if name:
            package = import_module("advnorm")
            reduce(getattr, name[1].strip(".").split("."), package)


def test_every_page_can_be_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        left += [
            (page.parent / target.partition("#")[0]).resolve() for target in links(page)
        ]
    assert {*PROSE} <= seen
