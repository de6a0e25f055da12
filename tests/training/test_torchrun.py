"""Real torchrun: a killed rank costs a restart and nothing else."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from advnorm import cli
from advnorm.recipe import Recipe, override
from advnorm.records import Run
from advnorm.training import train

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
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, output
    return output


def newest_step(out: Path) -> int:
    states = sorted((out / "checkpoints").glob("state-*.json"))
    return int(states[-1].stem.removeprefix("state-")) if states else -1


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
    output = finished(agent)
    assert output.count("going on from epoch") == 5
    assert fingerprint(Run.open(out)) == fingerprint(Run.open(whole))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Return a folder of two runs with 37 test samples, each trained in one process."""
    folder = tmp_path_factory.mktemp("runs")
    small = ["data={name: digits, train: 96, test: 37}", "epochs=2", "batch_size=24"]
    small += ["model.options={depth: 1, width: 8}", "attack.steps=2"]
    for norm in ("batch", "none"):
        train(override(Recipe(), [*small, f"norm.name={norm}"]), folder / norm)
    return folder


def alone(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code


def outcome(run: Run):
    """Return all results, and every verdict."""
    results = [result.model_copy(update={"seconds": 0.0}) for result in run.results()]
    return results, [run.verdicts(result.key) for result in results]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "--set=conditions=[clean, pgd-3x2]"],
        ["certify", "--method=ibp", "--set=eps=[0.01]"],
        ["perturb", "--set=directions=[sign, adversarial]", "--set=radii=[0, 0.3]"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_finds_the_same_with_two_ranks(two_runs, tmp_path, monkeypatch, command):
    name, *options = [*command, "--device=cpu"]
    for folder in ("one", "two"):
        shutil.copytree(two_runs / "batch", tmp_path / folder)
    alone(monkeypatch, name, tmp_path / "one", *options)
    output = finished(torchrun(name, tmp_path / "two", *options))
    assert outcome(Run.open(tmp_path / "one")) == outcome(Run.open(tmp_path / "two"))
    assert {len(v.samples) for v in outcome(Run.open(tmp_path / "two"))[1]} == {37}
    assert output.count(str(tmp_path / "two")) <= 3, "both ranks speak"


@pytest.mark.slow
def test_a_transfer_finds_the_same_with_two_ranks(two_runs, tmp_path, monkeypatch):
    both = [
        two_runs / "batch",
        two_runs / "none",
        "--device=cpu",
        "--set=conditions=[pgd-3]",
    ]
    alone(monkeypatch, "transfer", *both, "--out", tmp_path / "one.json")
    finished(torchrun("transfer", *both, "--out", tmp_path / "two.json"))
    one, two = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("one", "two"))
    for matrix in one + two:
        del matrix["seconds"]
    assert one == two and one[0]["clean"][0]["n"] == 37


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [["audit"], ["perturb", "--set=statistics=batch"], ["diagnose", "dead"]],
    ids=["audit", "perturb", "diagnose"],
)
def test_what_ranks_cannot_share_is_refused_in_one_sentence(two_runs, tmp_path, command):
    shutil.copytree(two_runs / "batch", tmp_path / "run")
    name, *options = command
    output = finished(torchrun(name, tmp_path / "run", *options, "--device=cpu"), code=1)
    assert output.count("run it in one process, without torchrun") == 1
    run = Run.open(tmp_path / "run")
    assert run.results() == [] and run.diagnoses() == []


@pytest.mark.slow
def test_reproduce_is_refused_with_several_ranks(tmp_path):
    what = ["galloway2019/table1", "--device=cpu", "--out", tmp_path / "out"]
    output = finished(torchrun("reproduce", *what), code=1)
    assert output.count("run it in one process, without torchrun") == 1
    assert not (tmp_path / "out").exists()
