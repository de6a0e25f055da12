"""A recipe that trains in a fraction of a second, and ways to compare runs."""

import sys
from pathlib import Path

import pytest

from advnorm.recipe import Recipe, override
from advnorm.records import Run

sys.path.insert(0, str(Path(__file__).parent))  # for the processes that tests start


@pytest.fixture
def tiny() -> Recipe:
    return override(
        Recipe(),
        [
            "data.train=96",
            "data.test=40",
            "model.options={depth: 1, width: 8}",
            "threat.eps=0.1",
            "attack.steps=2",
            "optimizer.lr=0.05",
            "epochs=3",
            "batch_size=32",
            "validation={samples: 30, steps: 2}",
            "evaluation={conditions: [clean, fgsm, pgd-3x2], threat: {eps: [0.05, 0.1]}, batch_size: 16}",
        ],
    )


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
