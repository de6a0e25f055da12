"""A real Ray cluster of two hosts makes a grid, and one of them dies on the way."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

import pytest

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}
"""Both hosts and the command must have the same; this one is made for the test alone."""
ROOT = Path(__file__).parents[2]
PATHS = {"PYTHONPATH": str(ROOT)}
GRID = [sys.executable, "-m", "advnorm", "reproduce", "xie2020/table1", "--seeds=3"]
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
RAY += ["--object-store-memory=100000000", "--disable-usage-stats"]
HEAD = "10.99.0.1:6379"


@pytest.fixture
def cluster(hosts):
    """Start Ray on both hosts, one task at a time on each."""
    pytest.importorskip("ray")
    folder = tempfile.mkdtemp(prefix="ray-")  # short: it holds Unix sockets
    head = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={folder}"]
    hosts[0].start(*RAY, *head, "--node-ip-address=10.99.0.1", **PATHS, **TOKEN)
    wait_until(lambda: "Ray runtime started" in hosts[0].output())
    hosts[1].start(
        *RAY, f"--address={HEAD}", "--node-ip-address=10.99.0.2", **PATHS, **TOKEN
    )
    wait_until(lambda: "Ray runtime started" in hosts[1].output())
    yield hosts
    for host in hosts:
        host.die()
    shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition) -> None:
    end = monotonic() + 120
    while not condition():
        assert monotonic() < end
        sleep(0.02)


def at_work(host) -> bool:
    """Tell whether a worker of Ray is at a task."""
    titles = [Path(f"/proc/{pid}/cmdline") for pid in host.pids()]
    return any(b"ray::attempt" in title.read_bytes() for title in titles if title.exists())


def outcome(out: Path):
    """Return the numbers of the table, and every bit of the weights of its runs."""
    record = json.loads((out / "xie2020/table1-smoke.json").read_text())
    files = sorted((out / "runs").glob("*/checkpoints/*.safetensors"))
    assert len(files) >= 9 and record["failed"] == {}
    return record["rows"], {str(f.relative_to(out)): f.read_bytes() for f in files}


@pytest.mark.slow
def test_a_grid_gives_the_same_though_one_host_dies(cluster, tmp_path):
    """The folder is named as seen from where the command is given, not from Ray's own."""
    out = tmp_path / "ray"
    grid = ["env", "-C", tmp_path, *GRID, "--device=cpu", "--on=ray", "--out=ray"]
    driver = cluster[0].start(*grid, RAY_ADDRESS=HEAD, **PATHS, **TOKEN)
    wait_until(lambda: len(list((out / "runs").glob("*/results/*.json"))) > 2)
    wait_until(lambda: at_work(cluster[1]))
    assert driver.poll() is None
    cluster[1].die()
    assert driver.wait(timeout=240) == 0, cluster[0].output()
    subprocess.run(
        [*GRID, "--device=cpu", "--out", tmp_path / "alone"],
        check=True,
        capture_output=True,
        env=os.environ | PATHS | {"OMP_NUM_THREADS": "1"},
    )
    assert outcome(out) == outcome(tmp_path / "alone")
