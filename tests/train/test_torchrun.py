"""Real torchrun: a killed rank costs a restart and nothing else."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from advnorm.records import Run

RECIPE = [
    "--set=data.train=96",
    "--set=data.test=37",
    "--set=model.options={depth: 1, width: 8}",
    "--set=attack.steps=2",
    "--set=batch_size=8",
    "--set=epochs=4",  # of twelve steps
    "--set=checkpoint_seconds=1e-9",  # after every step
    "--set=validation={samples: 20, steps: 2}",
    "--device=cpu",
]


def torchrun(*arguments, restarts=0, **options) -> subprocess.Popen:
    """Start two ranks of the real command."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node=2", f"--max-restarts={restarts}"]
    launcher += ["--monitor-interval=0.1", "-m", "advnorm"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*launcher, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        **options,
    )


def finished(process, *, code=0) -> str:
    try:
        said, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


def newest_step(out: Path) -> int:
    found = sorted((out / "checkpoints").glob("state-*.json"))
    return int(found[-1].stem.removeprefix("state-")) if found else -1


def kill_a_rank(agent, chosen) -> None:
    workers = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    assert len(workers) == 2
    os.kill(int(chosen.choice(workers)), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.ci
def test_five_killed_ranks_leave_the_weights_bitwise_the_same(tmp_path, fingerprint):
    whole, out = tmp_path / "whole", tmp_path / "run"
    finished(torchrun("train", "digits.pgd", "--out", whole, *RECIPE))
    chosen = random.Random(0)
    agent = torchrun("train", "digits.pgd", "--out", out, *RECIPE, restarts=5)
    end = monotonic() + 300
    for step in sorted(chosen.sample(range(1, 46), 5)):
        while newest_step(out) < step and agent.poll() is None and monotonic() < end:
            sleep(0.005)
        kill_a_rank(agent, chosen)
        while newest_step(out) <= step and agent.poll() is None and monotonic() < end:
            sleep(0.005)  # until it is under way again
    said = finished(agent)
    assert said.count("going on from epoch") == 5
    assert fingerprint(Run.open(out)) == fingerprint(Run.open(whole))
