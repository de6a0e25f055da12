"""The site in a real browser, as ``make docs`` has built it."""

from pathlib import Path

import pytest
from page_checks import broken_links, faint_labels, outside, overflowing
from tabbing import focus, unreachable

CI = (pytest.mark.slow, pytest.mark.ci)
DOCS = Path(__file__).parents[2] / "docs"
PARTS = 4
KINDS = (
    "index.html",
    "search.html",
    "tutorials/first_evaluation.html",
    "how-to/evaluation.html",
    "explanation/index.html",
    "reference/recipe.html",
    "reference/api/advnorm.norms.html",
    "reference/cli/train.html",
    "results/galloway2019.html",
    "benchmarks.html",
)
"""One page of each kind."""


def pages_of(site):
    return sorted(site.rglob("*.html"))


@pytest.mark.parametrize("part", [pytest.param(i, marks=CI) for i in range(PARTS)])
def test_every_page_is_quiet_linked_and_fits_and_each_kind_is_accessible(
    browser, site, violations, part
):
    faults, paths = [], pages_of(site)
    assert len(paths) > 60 and {site / name for name in KINDS} <= set(paths)
    for path in paths[part::PARTS]:
        page, name = browser.open(path), path.relative_to(site)
        problems = [*broken_links(page), *overflowing(page)]
        drawn = page.value("[...document.images].every(i => i.complete && i.naturalWidth)")
        problems += [] if drawn else ["an image is not drawn"]
        page.resize(360)
        problems += [f"at 360: {text}" for text in overflowing(page)]
        problems += [*page.errors, *page.requests_beyond(site)]
        if str(name) in KINDS:  # last: axe-core requests the sheets of styles
            page.resize(1280)
            problems += [*violations(page), *faint_labels(page)]
            page.show(dark=True)
            problems += [f"dark: {text}" for text in violations(page)]
        faults += [f"{name}: {text}" for text in problems]
    assert faults == []


@pytest.mark.slow
def test_no_page_breaks_a_rule_of_accessibility(browser, site, violations):
    faults = []
    for path in pages_of(site):
        page = browser.open(path, width=360)
        faults += [f"{path.relative_to(site)}: {text}" for text in violations(page)]
    assert faults == []


@pytest.mark.parametrize("name", [pytest.param(KINDS[3], marks=CI)])
def test_every_control_of_a_page_is_reached_by_tab(browser, site, name):
    assert unreachable(browser.open(site / name)) == []


@pytest.mark.slow
@pytest.mark.ci
def test_the_words_of_drawings_are_inside_of_them(browser):
    drawings = [
        *sorted(DOCS.glob("figures/*.svg")),
        *sorted(DOCS.glob("results/figures/*.svg")),
    ]
    assert len(drawings) > 20
    assert [
        f"{p.stem}: {text}" for p in drawings for text in outside(browser.open(p))
    ] == []


@pytest.mark.slow
@pytest.mark.ci
def test_a_search_by_keyboard_leads_to_pages_that_exist(browser, site):
    page = browser.open(site / "index.html")
    focus(page, "input.sidebar-search")
    page.press(*"certify", "Enter", settle=False)
    page.wait("document.querySelector('ul.search a') !== null")
    assert "search.html" in page.value("location.href")
    assert broken_links(page) == [] and page.errors == []
    assert page.requests_beyond(site) == []


@pytest.mark.slow
@pytest.mark.ci
def test_the_colours_are_chosen_by_keyboard(browser, site):
    page = browser.open(site / "index.html")
    colour = "getComputedStyle(document.body).backgroundColor"
    seen = {page.value(colour)}
    focus(page, ".theme-toggle")
    for _ in range(3):
        page.press("Enter")
        seen.add(page.value(colour))
    assert len(seen) == 2 and page.errors == []


@pytest.mark.slow
@pytest.mark.ci
def test_the_site_is_read_without_scripts(browser, site):
    page = browser.open(site / "how-to" / "evaluation.html", scripts=False)
    assert page.errors == [] and page.value(
        "document.querySelector('h1').checkVisibility()"
    )
    hidden = (
        "[...document.querySelectorAll('table, pre')].filter(e => !e.checkVisibility())"
    )
    assert page.value(f"{hidden}.length") == 0
