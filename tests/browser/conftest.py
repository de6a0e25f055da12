"""The browser, which all tests share; they are skipped where it, or axe-core, is missing."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what several tests share

import axe_core
from chromium import CHROMIUM, NAMES, Browser
from report_pages import make_once

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
REQUIRED = "BROWSER_TESTS" in os.environ
"""Set by continuous integration: what is missing is then a failure."""


def unavailable(reason: str) -> None:
    """Skip a test that needs something, or fail where that must be there."""
    (pytest.fail if REQUIRED else pytest.skip)(reason)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        unavailable(f"none of {', '.join(NAMES)} is installed")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture
def violations():
    """Return the function that looks for what breaks a rule of axe-core."""
    if not axe_core.SCRIPT.exists():
        unavailable(f"axe-core is not installed: {axe_core.INSTALL}")
    return axe_core.violations


@pytest.fixture(scope="session")
def reports(tmp_path_factory, worker_id):
    """Return the page of each report by its name; the processes of a test run share them."""
    base = tmp_path_factory.getbasetemp()
    return make_once((base if worker_id == "master" else base.parent) / "reports")


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the folder of the built site."""
    if not (SITE / "index.html").exists():
        unavailable("the site is not built: make docs")
    return SITE
