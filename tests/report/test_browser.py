"""The page in a real browser: it renders, makes no request and logs no error.

The browser is driven over its DevTools pipe (file descriptors 3 and 4, JSON messages ended by
a NUL), which needs no library. Where no Chromium is installed the tests are skipped.
"""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from dataclasses import dataclass, field

import pytest

from advnorm.report import write

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason=f"none of {', '.join(NAMES)} is installed"
)

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]
# The pipe's ends must be 3 and 4 in the child, which are other files in this process.
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Visit:
    """What happened while a page was open."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note(self, message):
        """Keep the events that a self-contained page must not cause."""
        what, about = message.get("method"), message.get("params", {})
        if what == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"]["text"])
        elif what == "Runtime.consoleAPICalled" and about["type"] == "error":
            self.errors.append(str(about["args"]))
        elif what == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])

    def outside(self, path):
        """Return the requests for anything but the page itself and data: addresses."""
        own = path.resolve().as_uri()
        return [url for url in self.requests if url != own and not url.startswith("data:")]


def above_four(descriptor):
    """Return a copy of a file descriptor that is none of 0 to 4, and close the first."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy


class Browser:
    """A headless Chromium with one tab."""

    def __init__(self, profile):
        to_read, self.to_browser = map(above_four, os.pipe())
        self.from_browser, to_write = map(above_four, os.pipe())
        start = [sys.executable, "-I", "-S", "-c", START, str(to_read), str(to_write)]
        self.process = subprocess.Popen(
            [*start, CHROMIUM, *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last, self.session = b"", 0, None
        self.visit = Visit()

    def connect(self):
        """Open the tab and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Network", "Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def receive(self, deadline):
        """Return the next message, or None at the deadline."""
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                return None
            chunk = os.read(self.from_browser, 1 << 20)
            assert chunk, "the browser ended"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(line)
        self.visit.note(message)
        return message

    def call(self, method, **params):
        """Send a command and return its result."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30
        while answer := self.receive(deadline):
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]
        raise TimeoutError(method)

    def open(self, path, *, width=1400, settle=0.3):
        """Open a page, wait for its load event and a moment more; return what happened."""
        self.visit = Visit()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 30
        while self.value("document.readyState") != "complete":
            assert time.monotonic() < deadline
        end = time.monotonic() + settle
        while self.receive(end):
            pass
        return self.visit

    def value(self, expression):
        """Return the value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self):
        """End the browser, whatever state it is in."""
        self.process.terminate()
        self.process.wait(timeout=30)
        os.close(self.to_browser)
        os.close(self.from_browser)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.connect()
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    return write(study, tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.parametrize("width", [360, 1400])
def test_page_renders_without_errors_or_requests_and_does_not_scroll_sideways(
    browser, report, width
):
    visit = browser.open(report, width=width)
    assert visit.errors == [] and visit.outside(report) == []
    headings = browser.value("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert headings == [
        "Overview",
        "Samples",
        "Radii",
        "Compare",
        "Training",
        "Provenance",
    ]
    assert browser.value("document.querySelector('#groups-table tbody').rows.length") == 4
    assert browser.value("document.documentElement.scrollWidth") <= width
    drawn = "[...document.images].every(i => i.complete && i.naturalWidth === 8)"
    assert browser.value("document.images.length") == 4 * 8 * 3 and browser.value(drawn)
    figures = (
        "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert all(300 < wide <= width for wide in browser.value(figures))


def test_a_click_on_a_heading_sorts_the_rows_and_a_second_one_turns_them(browser, report):
    browser.open(report)
    column = "[...document.querySelector('#groups-table tbody').rows].map(r => r.cells[2].dataset.value)"
    click = "document.querySelectorAll('#groups-table thead button')[2].click()"
    fractions = [float(fraction) for fraction in browser.value(column)]
    browser.value(click)
    assert [float(fraction) for fraction in browser.value(column)] == sorted(
        fractions, reverse=True
    )
    browser.value(click)
    assert [float(fraction) for fraction in browser.value(column)] == sorted(fractions)
    assert fractions != sorted(fractions) and fractions != sorted(fractions, reverse=True)


def test_the_warning_is_readable_text_that_the_mark_leads_to(browser, report):
    browser.open(report)
    target = browser.value(
        "document.querySelector('tbody .mark').getAttribute('href').slice(1)"
    )
    text = browser.value(f"document.getElementById('{target}').innerText")
    assert "a weaker attack does better" in text


def test_page_has_a_picture(browser, report):
    browser.open(report)
    picture = b64decode(browser.call("Page.captureScreenshot")["data"])
    assert picture[:8] == b"\x89PNG\r\n\x1a\n" and len(picture) > 20_000


def test_the_pages_policy_stops_a_script_that_is_not_its_own(browser, report, tmp_path):
    planted = tmp_path / "planted.html"
    script = "<script>document.title = 'taken'</script></body>"
    planted.write_text(report.read_text().replace("</body>", script))
    visit = browser.open(planted)
    assert browser.value("document.title") != "taken" and visit.errors


@pytest.mark.parametrize(
    "body, requested",
    [
        ('<img src="http://127.0.0.1:9/x.png">', ["http://127.0.0.1:9/x.png"]),
        ("<script>undefined_function()</script>", []),
        ("<script>console.error('planted')</script>", []),
    ],
    ids=["request", "exception", "console"],
)
def test_the_checker_catches_planted_faults(browser, tmp_path, body, requested):
    page = tmp_path / "fault.html"
    page.write_text(f'<!doctype html><link rel="icon" href="data:,"><title>x</title>{body}')
    visit = browser.open(page)
    assert visit.outside(page) == requested and visit.errors
