"""Real torchrun on two hosts: what a lost host, a cut link and a slow rank cost."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from advnorm.records import Run

RUN = [sys.executable, "-m", "torch.distributed.run"]
MEETING = ["--rdzv-backend=c10d", "--rdzv-id=job", "--rdzv-endpoint=host0:29400"]
SETTINGS = [
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


def begin(hosts, out: Path, *options, **environment):
    """Start one rank on each host; return the two processes of torchrun."""
    command = [*RUN, "--nnodes=2", "--nproc-per-node=1", *MEETING, *options]
    command += ["-m", "advnorm", "train", "digits.pgd", "--out", out, *SETTINGS]
    return [host.start(*command, **environment) for host in hosts]


def go_on(hosts) -> None:
    """Do on both hosts what the survivor's sentence advises, to the end of the run."""
    advice = {
        line for host in hosts for line in host.output().splitlines() if "go on with:" in line
    }
    assert len(advice) == 1
    command = shlex.split(advice.pop().partition("go on with: ")[2])
    assert command[:6] == ["torchrun", "--nnodes", "2", "--nproc-per-node", "1", "..."]
    command[5:6], command[:1] = MEETING, RUN
    finish(hosts, [host.start(*command) for host in hosts])


def finish(hosts, processes) -> None:
    for host, process in zip(hosts, processes, strict=True):
        assert process.wait(timeout=240) == 0, host.output()


def wait_for_step(out: Path, step: int) -> None:
    end = monotonic() + 120
    while newest_step(out) < step:
        assert monotonic() < end, "the run does not get there"
        sleep(0.005)


def newest_step(out: Path) -> int:
    states = sorted((out / "checkpoints").glob("state-*.json"))
    return int(states[-1].stem.removeprefix("state-")) if states else -1


def outcome(out: Path):
    """Return every bit of the last state and the best weights, and all metrics."""
    run = Run.open(out)
    states = sorted(run.checkpoints.glob("state-*.safetensors"))
    files = [states[-1], *run.checkpoints.glob("best-*.safetensors")]
    epochs = [epoch.model_copy(update={"seconds": 0.0}) for epoch in run.epochs()]
    assert len(epochs) == 4
    return {file.name: file.read_bytes() for file in files}, epochs


@pytest.fixture(scope="session")
def whole(possible, tmp_path_factory):
    """Return what two ranks of one host train, undisturbed."""
    out = tmp_path_factory.mktemp("one-host") / "run"
    command = [*RUN, "--standalone", "--nproc-per-node=2", "-m", "advnorm", "train"]
    subprocess.run(
        [*command, "digits.pgd", "--out", out, *SETTINGS],
        check=True,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=240,
    )
    return outcome(out)


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0, pytest.param(1, marks=pytest.mark.ci)])
def test_a_run_goes_on_bitwise_after_a_host_has_died(hosts, tmp_path, whole, dead):
    out, survivor = tmp_path / "run", 1 - dead
    processes = begin(hosts, out)
    wait_for_step(out, 20)
    hosts[dead].die()
    assert processes[survivor].wait(timeout=120) != 0
    said = hosts[survivor].output()
    lost = f"rank {survivor} on host{survivor} has lost rank {dead}: its process has ended."
    assert said.count(lost) == 1 and "advnorm/ranks.py" not in said
    assert f"The last good checkpoint is {out}/checkpoints/state-000000" in said
    go_on(hosts)
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_killed_rank_costs_one_restart_on_two_hosts(hosts, tmp_path, whole):
    """The hosts then differ in how many restarts they have counted."""
    out = tmp_path / "run"
    processes = begin(hosts, out, "--max-restarts=3", "--monitor-interval=0.1")
    wait_for_step(out, 20)
    (rank,) = hosts[1].ranks()
    os.kill(rank, signal.SIGKILL)
    finish(hosts, processes)
    assert hosts[0].output().count("going on from epoch 2") == 1
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_host_that_comes_back_is_taken_in_by_the_one_that_waits(hosts, tmp_path, whole):
    """Without that setting torchrun lets no host in that was started again."""
    out, unshared = tmp_path / "run", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    waiting, _ = begin(hosts, out, "--max-restarts=3", **unshared)
    wait_for_step(out, 20)
    hosts[1].die()
    (back,) = begin(hosts[1:], out, "--max-restarts=3", **unshared)
    finish(hosts, [waiting, back])
    assert hosts[0].output().count("going on from epoch 2") == 1
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_run_ends_when_the_link_is_cut_and_goes_on_bitwise(hosts, tmp_path, whole):
    out = tmp_path / "run"
    processes = begin(hosts, out)
    wait_for_step(out, 20)
    hosts[1].cut_link()
    sleep(60)
    for number, host in enumerate(hosts):
        lost = f"rank {number} on host{number} has lost rank {1 - number}: its host or the"
        assert host.output().count(lost) == 1 and "advnorm/ranks.py" not in host.output()
        assert not host.ranks()
    assert newest_step(out) < 48
    hosts[1].mend_link()
    for process in processes:
        assert process.wait(timeout=180) != 0
    go_on(hosts)
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_patient_run_sits_a_cut_of_a_minute_out(hosts, tmp_path, whole):
    out = tmp_path / "run"
    patience = "--rdzv-conf=read_timeout=300"
    processes = begin(hosts, out, patience, ADVNORM_PEER_TIMEOUT="300")
    wait_for_step(out, 20)
    hosts[1].cut_link()
    sleep(60)
    assert newest_step(out) < 48
    hosts[1].mend_link()
    finish(hosts, processes)
    assert "going on" not in hosts[0].output()
    assert outcome(out) == whole


@pytest.mark.slow
def test_a_rank_that_stands_still_for_half_a_minute_is_waited_for(hosts, tmp_path, whole):
    """Its kernel answers for it, so that it is not taken for a dead host."""
    out = tmp_path / "run"
    processes = begin(hosts, out, ADVNORM_PEER_TIMEOUT="10")
    wait_for_step(out, 20)
    (rank,) = hosts[1].ranks()
    os.kill(rank, signal.SIGSTOP)
    sleep(30)
    assert newest_step(out) < 48
    os.kill(rank, signal.SIGCONT)
    finish(hosts, processes)
    assert "going on" not in hosts[0].output()
    assert outcome(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["begin", "resume"])
def test_hosts_that_do_not_share_the_run_folder_are_told(hosts, tmp_path, whole, resume):
    shared = tmp_path / "runs"
    shared.mkdir()
    command = ["-m", "advnorm", "train", "digits.pgd", "--out", shared / "run", *SETTINGS]
    if resume:
        alone = [sys.executable, *command, "--set=epochs=1"]
        assert hosts[0].start(*alone).wait(timeout=120) == 0, hosts[0].output()
        command += ["--set=epochs=1"]
    command = [*RUN, "--nnodes=2", "--nproc-per-node=1", *MEETING, *command, *resume]
    processes = [hosts[0].start(*command), hosts[1].start(*command, private=shared)]
    for host, process in zip(hosts, processes, strict=True):
        assert process.wait(timeout=120) != 0
        assert (
            f"different files in {shared}/run: choose a folder that all share"
            in host.output()
        )
        assert "advnorm/ranks.py" not in host.output()
