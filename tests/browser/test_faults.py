"""Planted faults are found: what the other tests of this folder look for, they can see."""

import pytest
from page_checks import broken_links, faint_labels, outside, overflowing
from tabbing import unreachable

HEAD = (
    '<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>A page</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)
ABSENT = "http://127.0.0.1:9/x.png"


@pytest.fixture
def opened(browser, tmp_path):
    """Return a function that opens a page with a body."""

    def opened(body, **options):
        path = tmp_path / "page.html"
        path.write_text(HEAD + body)
        return browser.open(path, **options)

    return opened


def test_a_clean_page_has_no_fault(opened, violations):
    page = opened("<p id=x>Text <a href='#x'>back</a></p>", width=360)
    assert page.errors == [] and page.requests == [page.url]
    assert violations(page) == [] and overflowing(page) == [] and broken_links(page) == []


@pytest.mark.parametrize(
    "body, said",
    [
        ("<script>undefined_function()</script>", "undefined_function is not defined"),
        ("<script>console.error('planted', 7)</script>", "planted 7"),
        ("<script>console.assert(false, 'planted')</script>", "planted"),
        ("<script>Promise.reject(new Error('planted'))</script>", "planted"),
        ("<img alt='' src=absent.png>", "absent.png"),
        (
            "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\">"
            "<script>document.title = 'taken'</script>",
            "Content Security Policy",
        ),
        (
            "<meta http-equiv=Content-Security-Policy content=\"style-src 'none'\">"
            "<p style='color: red'>x</p>",
            "Content Security Policy",
        ),
    ],
)
def test_an_error_is_recorded(opened, body, said):
    page = opened(body)
    assert [said in error for error in page.errors] == [True]
    assert page.value("document.title") == "A page"


@pytest.mark.parametrize(
    "body",
    [
        f"<img alt='' src={ABSENT}>",
        f"<script>fetch('{ABSENT}').catch(() => 0)</script>",
        f"<style>p {{ background: url({ABSENT}) }}</style><p>x</p>",
        f"<iframe title=x src={ABSENT}></iframe>",
    ],
)
def test_a_request_is_recorded(opened, body, tmp_path):
    page = opened(body)
    assert page.requests_beyond() == [ABSENT]
    assert page.requests_beyond(tmp_path) == [ABSENT]


def test_a_request_for_a_file_of_the_folder_is_told_from_others(opened, tmp_path):
    (tmp_path / "site").mkdir()
    page = opened("<img alt='' src=site/x.png><img alt='' src=site/../../x.png>")
    assert len(page.requests_beyond()) == 2
    assert page.requests_beyond(tmp_path) == [(tmp_path.parent / "x.png").as_uri()]


@pytest.mark.parametrize(
    "body, rule",
    [
        ("<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>", "image-alt"),
        ("<p style='color: #bbb; background: #fff'>pale</p>", "color-contrast"),
        ("<input>", "label"),
        ("<button></button>", "button-name"),
        (
            "<div style='overflow: auto; height: 2em'><p style='height: 9em'>x</div>",
            "scroll",
        ),
    ],
)
def test_what_breaks_a_rule_of_accessibility_is_named(opened, violations, body, rule):
    (violation,) = violations(opened(body))
    assert violation.startswith(rule)


def test_words_that_leave_a_drawing_or_their_box_are_named(browser, tmp_path):
    drawing = tmp_path / "drawing.svg"
    drawing.write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100" '
        'viewBox="0 0 200 100"><rect class="box" x="10" y="10" width="40" height="20"/>'
        '<text x="12" y="24">in</text><text x="0" y="80">free</text>'
        '<text x="12" y="26">wider!</text><text x="190" y="60">cut</text></svg>'
    )
    assert outside(browser.open(drawing)) == ["wider!", "cut"]


def test_dark_colours_are_looked_at(opened, violations):
    page = opened(
        "<style>@media (prefers-color-scheme: dark) "
        "{ body { background: #111 } p { color: #222 } }</style><p>Text</p>"
    )
    assert violations(page) == []
    page.show(dark=True)
    assert len(violations(page)) == 1


def test_a_label_of_a_drawing_that_is_not_seen_is_named(opened):
    page = opened(
        "<style>body { background: #fff } @media (prefers-color-scheme: dark) "
        "{ body { background: #111 } }</style><svg><text>seen</text>"
        "<text fill='#ddd'>pale</text></svg>"
    )
    assert faint_labels(page) == ["pale"]
    page.show(dark=True)
    assert faint_labels(page) == ["seen"]


@pytest.mark.parametrize("width", [360, 1280])
def test_an_element_that_is_too_wide_is_named(opened, width):
    page = opened("<pre id=wide>" + 300 * "x" + "</pre>", width=width)
    assert overflowing(page) == ["pre#wide"]
    inside = "<div style='overflow-x: auto'><pre>" + 300 * "x" + "</pre></div>"
    assert overflowing(opened(inside, width=width)) == []


def test_a_page_for_large_screens_only_is_too_wide_for_a_telephone(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<!doctype html><title>x</title><p>No viewport is set.</p>")
    assert overflowing(browser.open(path, width=360)) != []


@pytest.mark.parametrize(
    "target", ["#absent", "absent.html", "page.html#absent", "#%C3%A9"]
)
def test_a_link_that_leads_nowhere_is_named(opened, target):
    page = opened(f"<a href='{target}'>x</a><a href='https://example.org/'>the web</a>")
    assert [link.endswith(target) for link in broken_links(page)] == [True]


def test_without_scripts_a_page_is_as_it_was_written(opened):
    page = opened("<script>document.title = 'taken'</script>", scripts=False)
    assert page.value("document.title") == "A page"
    assert (
        opened("<script>document.title = 'ran'</script>").value("document.title") == "ran"
    )


def test_keys_move_the_focus_and_act(opened):
    page = opened(
        "<button onclick='document.title += 1'>x</button><input aria-label=y>"
        "<select aria-label=z><option>first<option>second</select>"
    )
    page.press("Tab", "Enter", " ")
    assert page.value("document.title") == "A page11"
    page.press("Tab", "a", "B", "1")
    assert page.value("document.activeElement.value") == "aB1"
    page.press("Tab", "ArrowDown")
    assert page.value("document.activeElement.value") == "second"
    page.press("Tab", "Tab", shift=True)
    assert page.value("document.activeElement.tagName") == "BUTTON"


def test_what_tab_does_not_reach_is_named(opened):
    page = opened(
        "<button>seen</button><button style='outline: none'>without a ring</button>"
        "<button onfocus='this.blur()'>never</button><button hidden>hidden</button>"
    )
    missed = ["button without a ring", "button never"]
    assert unreachable(page) == missed


def test_printing_hides_what_is_for_screens(opened):
    page = opened("<style>@media print { p { display: none } }</style><p>x</p>")
    shown = "document.querySelector('p').checkVisibility()"
    assert page.value(shown)
    page.show(media="print")
    assert not page.value(shown)


def test_a_picture_is_of_the_size_of_the_page(opened):
    page = opened("<div style='height: 3000px'></div>", width=360)
    seen, whole = page.screenshot(), page.screenshot(whole=True)
    assert seen[:8] == whole[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(seen[20:24]) == 900 and int.from_bytes(whole[20:24]) > 3000
