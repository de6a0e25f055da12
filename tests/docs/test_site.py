"""The site: built without a warning, no broken link, no request, readable without a mouse."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from page_blocks import ROOT
from test_generated import api_pages, cli_pages

import advnorm
from advnorm.files import locked
from advnorm.listing import KINDS
from advnorm.recipe.keys import keys

sys.path.insert(0, str(ROOT / "docs" / "tools"))

import build_site
from autodoc_style import sections
from keyboard import scrollable
from repository_pages import adjusted, page_of

BUILD = ROOT / "docs" / "tools" / "build_site.py"
LOADED = {
    "script": "src",
    "img": "src",
    "source": "srcset",
    "iframe": "src",
    "link": "href",
}


class Page(HTMLParser):
    """What a page of the site links to, loads and offers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.faults: list[str] = []
        self.heads = [0]
        self.feed(path.read_text())

    def handle_starttag(self, tag, pairs):
        values = dict(pairs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]):
            self.loaded.append(values[LOADED[tag]])
        if tag == "img" and not (values.get("alt") or "").strip():
            self.faults.append(f"an image without words: {values.get('src')}")
        if tag == "pre" and "tabindex" not in values:
            self.faults.append("code that the keyboard cannot scroll")
        if tag == "div" and "table-wrapper" in (values.get("class") or "").split():
            wanted = {"role": "region", "tabindex": "0"}.items()
            if not wanted <= values.items() or not values.get("aria-label"):
                self.faults.append("a table that the keyboard cannot scroll")
        if tag == "table":
            self.heads.append(0)
        self.heads[-1] += tag == "th"

    def handle_endtag(self, tag):
        if tag == "table" and not self.heads.pop():
            self.faults.append("a table without headers")


@pytest.fixture(scope="module")
def site(shared_folder):
    """Return the site that `make docs` built, if that was without a message and of these files.

    Else build it, without running the tutorials; one of several processes does.
    """
    if build_site.is_current(build_site.BUILD / "html"):
        return build_site.BUILD / "html"
    out = shared_folder("site") / "html"
    with locked(out.with_name("lock"), wait=True):
        if not build_site.is_current(out):
            words = [sys.executable, str(BUILD), "--out", str(out)]
            child = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
            assert child.returncode == 0, child.stderr
            assert not child.stderr.strip()
    return out


@pytest.fixture(scope="module")
def pages(site):
    return {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}


def broken_links(pages, root):
    """Return the links of pages that lead to no file or to no anchor."""
    broken = []
    for path, page in pages.items():
        for link in {*page.links, *page.loaded}:
            target, _, anchor = link.partition("#")
            if re.match(r"(https?|mailto|data):", target):
                continue
            file = (path.parent / unquote(target.partition("?")[0])).resolve()
            file = path if not target else file
            anchors = pages[file].anchors if file in pages else set()
            if not file.is_file() or (anchor and unquote(anchor) not in anchors):
                broken.append(f"{path.relative_to(root)}: {link}")
    return broken


def faults(pages, root):
    return [
        f"{path.relative_to(root)}: {f}"
        for path, page in pages.items()
        for f in page.faults
    ]


def requests(pages, root):
    """Return what pages load from elsewhere than the site."""
    elsewhere = re.compile(r"(https?:)?//")
    return [
        f"{path.relative_to(root)}: {link}"
        for path, page in pages.items()
        for link in page.loaded
        if elsewhere.match(link)
    ]


@pytest.mark.slow
@pytest.mark.ci
def test_the_site_is_whole(site, pages):
    assert len(pages) > 60
    assert not broken_links(pages, site)
    assert not faults(pages, site)
    assert not requests(pages, site)
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", styles)


@pytest.mark.slow
@pytest.mark.ci
def test_the_built_pages_name_everything(site, pages):
    reference = site / "reference"
    api = {
        path.name: {anchor.removeprefix("module-") for anchor in Page(path).anchors}
        for path in (reference / "api").glob("*.html")
    }
    assert {f"advnorm.{name}" for name in advnorm.__all__} <= set().union(*api.values())
    for module, names in api_pages.documented().items():
        assert {f"{module}.{name}" for name in names} <= api[f"{module}.html"], module
    assert not words_missing(reference / "recipe.html", leaves())
    names = [name for registry in KINDS.values() for name in registry]
    assert not words_missing(reference / "names.html", names)
    for name, command in cli_pages.commands().items():
        flags = [flag for p in command.params for flag in p.opts if flag.startswith("-")]
        assert not words_missing(
            reference / "cli" / f"{name.replace(' ', '-')}.html", flags
        )
    assert "<math" in (reference / "api" / "advnorm.norms.html").read_text()


def leaves():
    every = [*keys()]
    return [key for key in every if not any(other.startswith(f"{key}.") for other in every)]


def words_missing(path, words):
    text = re.sub(r"<[^>]+>", " ", path.read_text())
    return [
        word
        for word in words
        if not re.search(rf"(?<![\w.-]){re.escape(word)}(?!\w)", text)
    ]


def test_a_site_is_current_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(build_site, "ROOT", root := tmp_path / "repository")
    (root / "docs" / "_build").mkdir(parents=True)
    (root / "docs" / "page.md").write_text("one")
    (out := tmp_path / "html").mkdir()
    assert not build_site.is_current(out)
    build_site._record(out).write_text(build_site.digest())
    (root / "docs" / "_build" / "x.html").write_text("not a source")
    assert build_site.is_current(out)
    (root / "docs" / "page.md").rename(root / "docs" / "other.md")
    assert not build_site.is_current(out)
    (root / "docs" / "other.md").rename(root / "docs" / "page.md")
    assert build_site.is_current(out)
    (root / "docs" / "page.md").write_text("two")
    assert not build_site.is_current(out)


def test_faults_of_a_page_are_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="nowhere.html">x</a><a href="#nothing">y</a><a href="#here" id="here">z</a>'
        '<img src="https://example.org/a.png"><pre>code</pre>'
        '<div class="table-wrapper"><table><tr><td>1</td></tr></table></div>'
    )
    pages = {page.resolve(): Page(page)}
    assert sorted(broken_links(pages, tmp_path)) == [
        "page.html: #nothing",
        "page.html: nowhere.html",
    ]
    assert len(faults(pages, tmp_path)) == 4 and len(requests(pages, tmp_path)) == 1
    assert words_missing(page, ["y", "code.more"]) == ["code.more"]


def test_what_scrolls_can_be_reached(tmp_path):
    page = tmp_path / "page.html"
    table = '<div class="table-wrapper x"><table><tr><th>a</th></tr></table></div>'
    page.write_text(scrollable(f"{table}<pre>b</pre>{table}"))
    assert not Page(page).faults and 'aria-label="Table 2"' in page.read_text()


def test_links_are_led_to_where_files_are_on_the_site():
    page, linked = ROOT / "docs" / "how-to" / "norms.md", set()
    text = (
        "[a](../benchmarks.md#norms) [b](../../CONTRIBUTING.md) [c](../results/README.md) "
        "[d](../../examples/read_run.py) [e](https://example.org/x.md)\n\n"
        "```python\nf[0](g.md)\n```\n"
    )
    assert adjusted(page, text, "how-to/norms.md", linked) == (
        "[a](../benchmarks.md#norms) [b](../project/contributing.md) [c](../results/index.md) "
        "[d](../files/examples/read_run.py.md) [e](https://example.org/x.md)\n\n"
        "```python\nf[0](g.md)\n```\n"
    )
    assert ROOT / "examples" / "read_run.py" in linked
    assert page_of(ROOT / "docs" / "index.md") == "index.md"


def test_sections_of_docstrings_become_fields():
    lines = ["Add.", "", "Args:", "    x: One,", "        two.", "", "Returns:", "    y."]
    assert sections(lines) == [
        "Add.",
        "",
        ":param x: One,",
        "    two.",
        "",
        ":returns:",
        "    y.",
    ]
