"""Tasks on one or several processes: every outcome comes, failures do not stop the rest."""

import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path
from threading import Thread

import pytest
from grid_tasks import die, linger, square

from advnorm.studies.grid import run_tasks
from advnorm.training import StoppedError
from advnorm.training.stop import SIGNALS


def check(outcomes) -> None:
    by_number = {outcome.number: outcome for outcome in outcomes}
    assert {n: o.result for n, o in by_number.items()} == {0: 0, 1: 1, 2: None, 3: 9}
    assert by_number[2].failure == "ValueError: two is not wanted"
    assert not by_number[3].failure


def alive(pid: int) -> bool:
    """Tell whether a process is there, and not only remembered by its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True)
    return not state.stdout.strip().startswith(b"Z")


def test_one_failure_does_not_stop_the_rest():
    check(run_tasks(square, range(4)))


@pytest.mark.slow
@pytest.mark.ci
def test_two_processes_give_the_same():
    check(run_tasks(square, range(4), on=2))


@pytest.mark.slow
def test_a_process_that_dies_is_named_and_the_rest_goes_on():
    by_number = {o.number: o for o in run_tasks(die, range(4), on=2)}
    assert set(by_number) == {0, 1, 2, 3}
    assert by_number[1].result is None
    assert "died" in by_number[1].failure
    assert [by_number[n].result for n in (0, 2, 3)] == [0, 2, 3]


def test_a_stop_can_be_told_by_another_process():
    error = pickle.loads(pickle.dumps(StoppedError(signal.SIGTERM)))
    assert error.signum == signal.SIGTERM and str(error) == "stopped by SIGTERM"


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_ends_all_processes_and_begins_no_other_task(tmp_path, hangup, signum):
    """Six tasks, two processes: those that wait in the pool's queue must not begin."""

    def interrupt():
        for _ in range(600):
            if len(list(tmp_path.iterdir())) == 2:
                break
            time.sleep(0.05)
        os.kill(os.getpid(), signum)

    Thread(target=interrupt).start()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with pytest.raises(StoppedError):
        list(run_tasks(linger, [str(tmp_path)] * 6, on=2))
    assert len(list(tmp_path.iterdir())) == 2
    assert not active_children()
    assert before == {number: signal.getsignal(number) for number in SIGNALS}


@pytest.mark.slow
@pytest.mark.ci
def test_processes_end_when_the_one_that_waits_is_killed(tmp_path):
    """One is at a task, the other has none."""
    command = f"from grid_tasks import *; begin({str(tmp_path)!r})"
    parent = subprocess.Popen([sys.executable, "-c", command], cwd=Path(__file__).parent)
    for _ in range(600):
        if len(list(tmp_path.glob("*.pid"))) == 2:
            break
        time.sleep(0.05)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    parent.kill()
    parent.wait()
    assert len(workers) == 2
    for _ in range(400):
        if not any(map(alive, workers)):
            break
        time.sleep(0.05)
    assert not any(map(alive, workers))
    assert (tmp_path / "stopped").exists()  # at a safe point


@pytest.mark.slow
@pytest.mark.ci
def test_a_terminal_that_is_closed_stops_all_processes_at_a_safe_point(tmp_path, hangup):
    """SIGHUP reaches all of them; the one that waits says when the others stop."""
    command = f"from grid_tasks import *; begin({str(tmp_path)!r})"
    parent = subprocess.Popen(
        [sys.executable, "-c", command],
        cwd=Path(__file__).parent,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for _ in range(600):
        if len(list(tmp_path.glob("*.pid"))) == 2:
            break
        time.sleep(0.05)
    os.killpg(parent.pid, signal.SIGHUP)
    assert parent.wait(60) == 1  # StoppedError, which nobody catches here
    assert (tmp_path / "stopped").exists()
    assert not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid"))


@pytest.mark.slow
def test_a_real_local_ray_of_two_workers_gives_the_same(two_workers):
    check(run_tasks(square, range(4), on="ray"))


@pytest.mark.slow
def test_a_worker_of_ray_that_dies_is_named_and_the_rest_goes_on(two_workers):
    outcomes = {outcome.number: outcome for outcome in run_tasks(die, range(4), on="ray")}
    assert outcomes[1].result is None and "died" in outcomes[1].failure
    assert [outcomes[n].result for n in (0, 2, 3)] == [0, 2, 3]
