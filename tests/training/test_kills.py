"""An evaluation that was killed 20 times gives the verdicts of one that was not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from advnorm.recipe import override
from advnorm.records import Run
from advnorm.training import train

SETTINGS = ["conditions=[clean, pgd-2x2, pgd-1..4+random, square-9]", "batch_size=4"]
EVENTS = {"for_each_target": 8000, "run_condition": 6000}
EVENTS |= {"write_atomically": 300, "write_verdicts": 300}
"""Functions after whose first call a life may end, and how many events later at most."""


def process(*arguments: object) -> str:
    """Run Python; return what it said."""
    changes = [f"--set={setting}" for setting in SETTINGS]
    done = subprocess.run(
        [sys.executable, *map(str, arguments), *changes],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def written(run: Run) -> list[object]:
    """Return all that an evaluation leaves behind, but for the time that it took."""
    results = [
        r.model_copy(update={"seconds": 0.0, "queries": 0, "gradients": 0})
        for r in run.results()
    ]
    verdicts = {p.name: p.read_bytes() for p in (run.path / "verdicts").glob("[!.]*")}
    examples = {p.name: p.read_bytes() for p in (run.path / "examples").glob("[!.]*")}
    return [results, verdicts, examples]


@pytest.mark.slow
@pytest.mark.ci
def test_an_evaluation_that_was_killed_20_times_gives_the_same_verdicts(tiny, tmp_path):
    recipe = override(tiny, ["epochs=1", "evaluation.threat.eps=[0.1]", "data.test=32"])
    whole = train(recipe, tmp_path / "whole")
    run = Run.open(shutil.copytree(whole.path, tmp_path / "run"))
    rng = random.Random(0)
    moments = [(name, rng.randrange(most)) for name, most in 5 * list(EVENTS.items())]
    killed = Path(__file__).with_name("killed.py")
    output = process(killed, json.dumps(moments), whole.path, run.path)
    ends, cut_short = json.loads(output.splitlines()[-1])
    assert ends == 20 * [-signal.SIGKILL]
    assert max(cut_short) == 1, "no kill hit a write, or what it left was not cleared"
    assert 0 < len(run.results()) < len(whole.results()) == 4
    process("-m", "advnorm", "evaluate", run.path)
    assert written(run) == written(whole)
    assert not list(run.path.rglob(".*.tmp"))
