"""Every control of a report is worked with the keyboard alone, and does what it says."""

import pytest
from tabbing import focus

pytestmark = [pytest.mark.slow, pytest.mark.ci]
ROWS = "[...document.querySelector('%s tbody').rows].filter(row => !row.hidden)"


@pytest.fixture
def many(browser, reports):
    """Open the report of many runs, and see that nothing fails while it is used."""
    page = browser.open(reports["many"])
    yield page
    assert page.errors == [] and page.requests_beyond() == []


def rows(page, table):
    """Return the first cells of the rows that are shown."""
    return page.value(f"{ROWS % table}.map(row => row.cells[0].textContent.trim())")


def test_a_heading_sorts_the_rows_and_again_turns_them(many):
    column = f"{ROWS % '#groups-table'}.map(row => Number(row.cells[1].dataset.value))"
    focus(many, "#groups-table thead th:nth-child(2) button")
    many.press("Enter")
    down = many.value(column)
    assert down == sorted(down, reverse=True) and len(set(down)) > 1
    many.press(" ")
    assert many.value(column) == sorted(down)
    heading = "document.querySelector('#groups-table thead th:nth-child(2)').ariaSort"
    assert many.value(heading) == "ascending"


def test_words_and_a_box_choose_rows(many):
    whole = rows(many, "#groups-table")
    focus(many, "input[type=search]")
    many.press(*"mixture")
    assert len(rows(many, "#groups-table")) == 1 < len(whole)
    count = "document.querySelector('#overview .controls [role=status]').textContent"
    assert many.value(count) == f"1 of {len(whole)} rows"
    many.press(*(["Backspace"] * 7))
    assert rows(many, "#groups-table") == whole
    focus(many, "#overview input[type=checkbox]")
    many.press(" ")
    assert 0 < len(rows(many, "#groups-table")) < len(whole)


def test_a_group_is_highlighted_in_the_figures(many):
    focus(many, "#groups-table tbody tr:first-child button.point")
    many.press("Enter")
    assert many.value("document.activeElement.ariaPressed") == "true"
    hot = "document.querySelectorAll('svg.chart .hot').length"
    focus(many, "#samples select")
    assert many.value(hot) > 0  # elsewhere too, until it is pressed again
    focus(many, "#groups-table tbody tr:first-child button.point", shift=True)
    many.press("Enter")
    focus(many, "#samples select")
    assert many.value(hot) == 0


def test_a_warning_leads_to_its_text(many):
    focus(many, "a.mark")
    many.press("Enter")
    assert many.value("document.querySelector(':target').innerText.length") > 20
    top = many.value("document.querySelector(':target').getBoundingClientRect().top")
    assert -1 < top < 900


@pytest.mark.parametrize("section", ["#overview", "#radii", "#training"])
def test_arrows_read_the_points_of_a_chart(many, section):
    focus(many, f"{section} svg.chart .datum")
    text = "document.activeElement.closest('figure').querySelector('.readout').textContent"
    said = [many.value(text)]
    for key in ("ArrowRight", "End", "Home"):
        many.press(key)
        said.append(many.value(text))
    assert said[0] == said[3] and len(set(said)) >= 2
    assert all(any(digit.isdigit() for digit in one) for one in said)


def test_a_radius_says_its_shares_with_intervals(many):
    focus(many, "#radii svg.chart .datum")
    text = many.value("document.activeElement.ariaLabel")
    for word in ("certified", "open", "broken", "[", "%"):
        assert word in text, text


def test_pointing_at_a_radius_says_the_same_as_the_keyboard(many):
    mark = "document.querySelector('#radii svg.chart .datum[tabindex=\"-1\"] .shape')"
    text = f"{mark}.closest('figure').querySelector('.readout').textContent"
    middle = (
        f"(b => [b.x + b.width / 2, b.y + b.height / 2])({mark}.getBoundingClientRect())"
    )
    many.value(f"{mark}.scrollIntoView({{block: 'center'}})")
    hint = many.value(text)
    many.point(*many.value(middle))
    assert many.value(text) == many.value(f"{mark}.parentNode.ariaLabel") != hint
    many.point(0, 0)
    assert many.value(text) == hint


def test_a_chart_is_zoomed_and_shown_whole_again(many):
    lines = "document.activeElement.closest('figure').querySelector('.lines')"
    place = f"{lines}.getAttribute('transform')"
    focus(many, "#training button[aria-label='Zoom in']")
    before = many.value(place)
    many.press("Enter")
    once = many.value(place)
    many.press("Enter")
    assert len({before, once, many.value(place)}) == 3
    for name in ("Zoom out", "Earlier", "Later", "Show all"):
        focus(many, f"button[aria-label='{name}']")
        many.press("Enter")
    assert many.value(place) in (before, "matrix(1 0 0 1 0 0)")


def count_of(page):
    return int(
        page.value("document.querySelector('#samples-count').textContent").split()[0]
    )


def test_samples_are_filtered_counted_and_opened(many):
    whole = count_of(many)
    focus(many, "#filter-label")
    many.press("ArrowDown")
    one_class = count_of(many)
    assert 0 < one_class < whole
    assert many.value("document.activeElement.id") == "filter-label", "the focus is kept"
    shown = "[...document.querySelectorAll('#samples-list tbody td:nth-child(2)')]"
    assert set(many.value(f"{shown}.map(cell => cell.textContent)")) == {"0"}
    focus(many, "#filter-outcome")
    many.press("ArrowDown", "ArrowDown")
    assert count_of(many) < one_class
    table = many.value("document.querySelector('#confusion').innerText")
    focus(many, "#filter-reset")
    many.press("Enter")
    assert count_of(many) == whole
    assert many.value("document.querySelector('#confusion').innerText") != table
    focus(many, "#samples-next")
    first = many.value("document.querySelector('#samples-list tbody').innerText")
    many.press("Enter")
    assert many.value("document.querySelector('#samples-list tbody').innerText") != first
    focus(many, "#samples-list tbody button", shift=True)
    name = many.value("document.activeElement.textContent")
    many.press("Enter")
    heading = "document.activeElement.textContent"
    assert many.value(heading).lower().startswith(f"{name},")
    assert many.value("document.querySelector('#sample-detail table').rows.length") > 3
    many.press("Tab", "Enter")
    assert many.value("document.querySelector('#sample-detail').children.length") == 0


def test_an_image_is_shown_large(many):
    small = many.value("document.querySelector('#images ~ * img').clientWidth")
    focus(many, "#samples .images button")
    many.press("Enter")
    large = "Math.max(...[...document.images].map(image => image.clientWidth))"
    assert many.value(large) >= 2 * small > 0


def test_a_pair_shows_the_samples_on_which_it_differs(many):
    pair = "document.activeElement.closest('tr')"
    focus(many, "#pairs-table tbody button")
    only = many.value(f"[6, 7].map(i => Number({pair}.cells[i].textContent))")
    many.press("Enter")
    assert count_of(many) == sum(only)
    assert many.value("document.activeElement.id") == "filter-condition"


def test_what_is_folded_opens(many):
    focus(many, "#provenance summary")
    many.press("Enter")
    assert many.value("document.activeElement.parentElement.open")
