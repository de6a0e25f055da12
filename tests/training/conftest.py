"""Ways to compare runs."""

import sys
from pathlib import Path

import pytest

from advnorm.records import Run

sys.path.insert(0, str(Path(__file__).parent))  # for the processes that tests start


@pytest.fixture
def fingerprint():
    """Return a function of a run: every bit of its weights, memory and metrics."""

    def of(run: Run) -> dict[str, object]:
        # Which older states are kept depends on when checkpoints were written.
        states = sorted(run.checkpoints.glob("state-*.safetensors"))
        files = [states[-1], *run.checkpoints.glob("best-*.safetensors")]
        epochs = [epoch.model_copy(update={"seconds": 0.0}) for epoch in run.epochs()]
        return {"weights": {f.name: f.read_bytes() for f in files}, "epochs": epochs}

    return of
