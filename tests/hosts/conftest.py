"""Two hosts for a test, and nothing left of them afterwards."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from namespaces import missing, two_hosts


@pytest.fixture(scope="session")
def possible():
    """Skip where two hosts cannot be made."""
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def hosts(possible, tmp_path):
    """Return two hosts with a link between them."""
    with two_hosts(tmp_path) as both:
        yield both
