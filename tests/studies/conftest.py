"""Lets the processes that tests start find what they are to do; a local Ray."""

import os
import sys
from pathlib import Path
from secrets import token_hex

import pytest

sys.path.insert(0, str(Path(__file__).parent))
RAY_TOKEN = token_hex(32)
"""One a process: Ray reads it once."""


@pytest.fixture
def two_workers(monkeypatch):
    """Have a local Ray of two workers."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_TOKEN", RAY_TOKEN)  # else Ray writes one to ~/.ray
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, sys.path)))  # of its workers
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()
