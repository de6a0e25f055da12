"""A headless Chromium, driven over its DevTools pipe, which needs no library.

The browser reads commands from file descriptor 3 and writes answers and events to 4: JSON
messages, each ended by a NUL. Each page is opened in a tab of its own, and records what a
page that is meant to be read offline must not do.
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
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = (
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
)
# The pipe's ends must be 3 and 4 in the child, which are other files in this process.
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 60.0
"""Seconds until a command without an answer is an error."""
KEY_CODES = {
    "Backspace": 8,
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "PageUp": 33,
    "PageDown": 34,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
TEXTS = {"Enter": "\r"}
SHIFT = 8


class Browser:
    """A Chromium with a fresh profile; ``open`` gives pages."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM, f"none of {', '.join(NAMES)} is installed"
        to_read, self._to_browser = map(_above_four, os.pipe())
        self._from_browser, to_write = map(_above_four, os.pipe())
        start = [sys.executable, "-I", "-S", "-c", START, str(to_read), str(to_write)]
        self._process = subprocess.Popen(
            [*start, CHROMIUM, *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._last, self._page = b"", 0, None

    def open(self, address: Path | str, **options: Any) -> "Page":
        """Open a file or address in a new tab, and close the tab before it."""
        if self._page:
            self.call("Target.closeTarget", targetId=self._page.target)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._page = Page(self, target, session["sessionId"], **options)
        self._page.go(address.resolve().as_uri() if isinstance(address, Path) else address)
        return self._page

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        command = json.dumps(message | ({"sessionId": session} if session else {}))
        remaining = command.encode() + b"\0"
        while remaining:
            remaining = remaining[os.write(self._to_browser, remaining) :]
        deadline = time.monotonic() + PATIENCE
        while (answer := self.receive(deadline)).get("id") != self._last:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def receive(self, deadline: float) -> dict[str, Any]:
        """Return the next message; the open page notes the events that are its own."""
        while b"\0" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._from_browser], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._from_browser, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser ended")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if self._page and message.get("sessionId") == self._page.session:
            self._page.note(message)
        return message

    def close(self) -> None:
        """End the browser, whatever state it is in."""
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._to_browser)
        os.close(self._from_browser)


class Page:
    """A tab, and what happened in it."""

    def __init__(
        self,
        browser: Browser,
        target: str,
        session: str,
        *,
        width: int = 1280,
        dark: bool = False,
        media: str = "",
        scripts: bool = True,
    ) -> None:
        self.browser, self.target, self.session = browser, target, session
        self.scripts, self.url = scripts, ""
        self.errors: list[str] = []
        """Errors of the console, uncaught exceptions, and what the page's policy stopped."""
        self.requests: list[str] = []
        """The address of every request, that of the page included."""
        self._loaded: set[str] = set()
        for domain in ("Network", "Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.resize(width)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.show(dark=dark, media=media)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to the tab and return its result."""
        return self.browser.call(method, self.session, **params)

    def resize(self, width: int) -> None:
        """Give the screen a width; a narrow one is a telephone's.

        There, a page without a viewport tag is 980 pixels wide.
        """
        self.width = width
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def show(self, *, dark: bool = False, media: str = "") -> None:
        """Show the page in light or dark colours, or as ``media="print"`` does."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def go(self, url: str) -> None:
        """Load an address; return after the load event and two drawn frames."""
        self.url = url
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + PATIENCE
        while "loaderId" in answer and answer["loaderId"] not in self._loaded:
            self.browser.receive(deadline)
        self.settle()

    def settle(self) -> None:
        """Wait until two frames are drawn; events of before are then recorded."""
        frames = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
        self.value(frames if self.scripts else "0")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true, also across a navigation."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(RuntimeError):  # the page it was asked about is gone
                if self.value(condition):
                    return
            time.sleep(0.05)
        raise TimeoutError(condition)

    def note(self, message: dict[str, Any]) -> None:
        """Record an event."""
        event, about = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.errors.append(f"{details['text']} {thrown}")
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            said = (str(x.get("value", x.get("description"))) for x in about["args"])
            self.errors.append(" ".join(said))
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
        elif event == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])

    def requests_beyond(self, folder: Path | None = None) -> list[str]:
        """Return the requests for anything but the page, ``data:`` and a folder's files."""
        own = [self.url.partition("#")[0], *([folder.as_uri() + "/"] if folder else [])]
        return [
            url
            for url in self.requests
            if not url.startswith("data:")
            and url.partition("#")[0] != own[0]
            and not url.startswith(tuple(own[1:]))
        ]

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, *keys: str, shift: bool = False, settle: bool = True) -> None:
        """Press keys one after the other: a name of KEY_CODES, or a character."""
        for key in keys:
            text = TEXTS.get(key, key if len(key) == 1 else "")
            down = "keyDown" if text else "rawKeyDown"
            code = KEY_CODES.get(key) or ord(key.upper())
            event = {
                "key": key,
                "code": "Space" if key == " " else key,
                "windowsVirtualKeyCode": code,
                "modifiers": SHIFT if shift else 0,
            }
            self.call("Input.dispatchKeyEvent", type=down, text=text, **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        if settle:
            self.settle()

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place on the screen."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return a PNG of what is seen, or of the whole page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return b64decode(picture["data"])


def _above_four(descriptor: int) -> int:
    """Return a copy of a file descriptor that is none of 0 to 4, and close the first."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy
