"""Four reports in a real browser: quiet, linked, accessible, and worked by keyboard."""

import pytest
from page_checks import broken_links, faint_labels, overflowing
from report_pages import NAMES
from tabbing import unreachable

pytestmark = [pytest.mark.slow, pytest.mark.ci]
PARTS = ["Overview", "Samples", "Radii", "Compare", "Training", "Diagnoses", "Provenance"]
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true })"
EVERY = pytest.mark.parametrize("name", NAMES)


@EVERY
@pytest.mark.parametrize("width", [360, 1280])
def test_a_report_asks_for_nothing_and_logs_no_error(browser, reports, name, width):
    page = browser.open(reports[name], width=width)
    page.value(OPEN_ALL)
    assert page.errors == [] and page.requests_beyond() == []
    assert broken_links(page) == [] and overflowing(page) == []
    assert page.value("document.images.length") > 0 or name == "study"
    assert faint_labels(page) == []
    page.show(dark=True)
    assert faint_labels(page) == []
    assert page.value("[...document.images].every(i => i.complete && i.naturalWidth)")
    drawn = "[...document.querySelectorAll('figure svg')].map(svg => svg.clientWidth)"
    assert page.value(drawn) and all(250 < wide <= width for wide in page.value(drawn))


@EVERY
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_report_breaks_no_rule_of_accessibility(browser, reports, violations, name, dark):
    page = browser.open(reports[name], dark=dark)
    page.value(OPEN_ALL)
    assert violations(page) == []


@pytest.mark.parametrize("name", ["one", "many"])
def test_a_report_of_runs_has_every_part(browser, reports, name):
    headings = "[...document.querySelectorAll('h2')].map(heading => heading.textContent)"
    assert browser.open(reports[name]).value(headings) == PARTS
    assert browser.open(reports[name]).value("document.querySelectorAll('#why svg').length")


@EVERY
def test_every_control_is_reached_by_tab_and_shows_it(browser, reports, name):
    assert unreachable(browser.open(reports[name])) == []


@EVERY
def test_without_scripts_and_printed_all_tables_are_there(browser, reports, name):
    hidden = (
        "[...document.querySelectorAll('table')].filter(t => !t.closest('details, #sample-browser')"
        " && !(t.checkVisibility() && t.offsetHeight > 20)).length"
    )
    page = browser.open(reports[name], scripts=False)
    assert page.errors == [] and page.value("document.querySelectorAll('table').length") > 0
    assert page.value(hidden) == 0
    page.show(media="print")
    assert page.value(hidden) == 0
    printed = browser.open(reports[name], media="print")
    assert printed.value(hidden) == 0


def test_the_pages_policy_stops_a_script_that_is_not_its_own(browser, reports, tmp_path):
    planted = tmp_path / "planted.html"
    script = "<script>document.title = 'taken'</script></body>"
    planted.write_text(reports["many"].read_text().replace("</body>", script))
    page = browser.open(planted)
    assert page.value("document.title") != "taken"
    assert any("Content Security Policy" in error for error in page.errors)
