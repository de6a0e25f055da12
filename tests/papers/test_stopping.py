"""Ctrl-C while processes train: one sentence, and the same command goes on from there."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def epochs(folder):
    """Return the finished epochs of every run."""
    return {
        path.parent.name: [
            json.loads(line)["epoch"] for line in path.read_text().splitlines()
        ]
        for path in (folder / "runs").glob("*/metrics.jsonl")
    }


def interrupted(folder, workers, more_than):
    """Start the command, stop it once some run has so many epochs; return what it said."""
    words = ["reproduce", "galloway2019/figure9", "--scale", "full", "--on", str(workers)]
    command = [sys.executable, "-m", "advnorm", *words, "--out", str(folder)]
    job = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(1200):
            if max(map(len, epochs(folder).values()), default=0) > more_than:
                break
            time.sleep(0.1)
        os.killpg(job.pid, signal.SIGINT)
        output = job.communicate(timeout=60)[1]
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    return job.returncode, output


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_reproduction_goes_on_where_it_was(tmp_path, workers):
    code, output = interrupted(tmp_path, workers, 2)
    assert code == 130
    assert "everything done so far is saved" in output
    assert (
        f"go on with: advnorm reproduce galloway2019/figure9 --scale full --on {workers}"
        in output
    )
    first = epochs(tmp_path)
    longest = max(map(len, first.values()))
    interrupted(tmp_path, workers, longest + 2)
    for name, finished in epochs(tmp_path).items():
        assert finished == list(
            range(1, len(finished) + 1)
        )  # none is lost, none is done twice
        assert len(finished) >= len(first.get(name, []))
    assert max(map(len, epochs(tmp_path).values())) > longest
