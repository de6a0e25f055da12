"""Four reports in a real browser: quiet, linked, accessible, and worked by keyboard."""

import pytest
from page_checks import broken_links, faint_labels, overflowing
from report_pages import NAMES
from tabbing import unreachable

pytestmark = [pytest.mark.slow, pytest.mark.ci]
PARTS = ["Overview", "Samples", "Radii", "Compare", "Training", "Diagnoses", "Provenance"]
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true })"
HIDDEN = (
    "[...document.querySelectorAll('table')].filter(t => !t.closest('details, #sample-browser')"
    " && !(t.checkVisibility() && t.offsetHeight > 20)).length"
)
"""Tables that are not shown."""
EVERY = pytest.mark.parametrize("name", NAMES)


@EVERY
def test_a_report_is_quiet_linked_readable_and_worked_by_keyboard(
    browser, reports, violations, name
):
    page = browser.open(reports[name])
    assert unreachable(page) == []
    page.value(OPEN_ALL)
    assert broken_links(page) == []
    assert page.value("document.images.length") > 0 or name == "study"
    assert page.value("[...document.images].every(i => i.complete && i.naturalWidth)")
    for dark in (False, True):
        page.show(dark=dark)
        assert violations(page) == [] and faint_labels(page) == [], f"dark: {dark}"
    page.show()
    drawn = "[...document.querySelectorAll('figure svg')].map(svg => svg.clientWidth)"
    for width in (1280, 360):
        page.resize(width)
        assert overflowing(page) == []
        assert page.value(drawn) and all(250 < wide <= width for wide in page.value(drawn))
    page.show(media="print")
    assert page.value(HIDDEN) == 0
    assert page.errors == [] and page.requests_beyond() == []


@pytest.mark.parametrize("name", ["one", "many"])
def test_a_report_of_runs_has_every_part(browser, reports, name):
    headings = "[...document.querySelectorAll('h2')].map(heading => heading.textContent)"
    assert browser.open(reports[name]).value(headings) == PARTS
    assert browser.open(reports[name]).value("document.querySelectorAll('#why svg').length")


@EVERY
def test_a_report_asks_for_nothing_on_a_telephone_and_all_tables_need_no_script(
    browser, reports, name
):
    page = browser.open(reports[name], width=360)
    assert page.errors == [] and page.requests_beyond() == [] and overflowing(page) == []
    page = browser.open(reports[name], scripts=False)
    assert page.errors == [] and page.value("document.querySelectorAll('table').length") > 0
    assert page.value(HIDDEN) == 0
    page.show(media="print")
    assert page.value(HIDDEN) == 0


def test_the_pages_policy_stops_a_script_that_is_not_its_own(browser, reports, tmp_path):
    planted = tmp_path / "planted.html"
    script = "<script>document.title = 'taken'</script></body>"
    planted.write_text(reports["many"].read_text().replace("</body>", script))
    page = browser.open(planted)
    assert page.value("document.title") != "taken"
    assert any("Content Security Policy" in error for error in page.errors)
