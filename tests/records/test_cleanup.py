"""What killed processes leave in a run folder is cleared at the next start."""

import os
import signal
from pathlib import Path

import pytest

from advnorm import files
from advnorm.files import clear_leftovers, write_alone, write_atomically
from advnorm.recipe import override
from advnorm.records import Environment, Run
from advnorm.runs import evaluate_run
from advnorm.training import checkpoints, train


def killed(work, module, name, when):
    """Do something in a process that is killed in a call of a function, when it is time."""
    original = getattr(module, name)

    def deadly(*args):
        if when(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args)

    pid = os.fork()
    if not pid:
        setattr(module, name, deadly)
        try:
            work()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def writes(part):
    """Return whether a descriptor is of a temporary file whose name begins so."""
    return lambda fd: Path(os.readlink(f"/proc/self/fd/{fd}")).name.startswith(part)


def left(run):
    """Return what no finished write leaves: temporary files, weights without manifest."""
    weights = run.rglob("checkpoints/*.safetensors")
    half = [path.name for path in weights if not path.with_suffix(".json").exists()]
    return sorted([path.name.split(".")[1] for path in run.rglob(".*.tmp")] + half)


@pytest.fixture
def quick(tiny):
    return override(tiny, ["epochs=2"])


@pytest.mark.parametrize("part", [".state-00000003", ".best-00000003"])
def test_a_temporary_file_of_killed_training(quick, tmp_path, part):
    out = tmp_path / "run"
    killed(lambda: train(quick, out), os, "fsync", writes(part))
    assert left(out) == [part[1:]]
    train(quick, out, resume=True)
    assert left(out) == []


def test_half_written_best_weights(quick, tmp_path):
    """The kill comes after the weights and before their manifest."""
    out = tmp_path / "run"
    killed(
        lambda: train(quick, out),
        checkpoints,
        "write_atomically",
        lambda path, content: path.match("best-*.json"),
    )
    assert left(out) == ["best-00000003.safetensors"]
    last = override(quick, ["evaluation.weights=last"])
    evaluate_run(Run.open(out), last)
    assert left(out) == []
    assert len(list(out.glob("checkpoints/state-*.safetensors"))) == 1


def test_a_temporary_file_of_a_killed_evaluation(quick, tmp_path):
    run = train(quick, tmp_path / "run")
    for part in (".clean.json", ".fgsm_linf_0.1.safetensors", ".pgd-3x2_linf_0.1.json"):
        killed(lambda: evaluate_run(run, quick), os, "fsync", writes(part))
        assert len(left(run.path)) == 1
    evaluate_run(run, quick)
    assert left(run.path) == []


def test_a_temporary_file_of_a_beginning_does_not_stand_in_the_way(quick, tmp_path):
    out = tmp_path / "run"
    killed(lambda: train(quick, out), os, "fsync", writes(".recipe.yaml"))
    assert left(out) == ["recipe"]
    train(quick, out)
    assert left(out) == []


def test_a_file_that_a_living_process_writes_is_left_alone(tmp_path):
    here = Environment.here(device="cpu", threads=1)
    run = Run.create(tmp_path / "run", "{}\n", here)
    begun, go_on = os.pipe(), os.pipe()
    original = os.fsync

    def slow(descriptor):
        os.write(begun[1], b".")
        os.read(go_on[0], 1)
        original(descriptor)

    pid = os.fork()
    if not pid:
        files.os.fsync = slow
        code = 1
        try:
            write_atomically(run.path / "report.html", b"whole")
            code = 0
        finally:
            os._exit(code)
    os.read(begun[0], 1)
    with run.lock():
        pass
    there = left(run.path)
    os.write(go_on[1], b"..")
    assert there == ["report"]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (run.path / "report.html").read_bytes() == b"whole" and not left(run.path)


def test_files_that_are_not_ours_are_left_alone(tmp_path):
    here = Environment.here(device="cpu", threads=1)
    run = Run.create(tmp_path / "run", "{}\n", here)
    (tmp_path / "precious").write_text("precious")
    names = [
        ".notes.txt.12.tmp",
        "recipe.yaml.12.tmp",
        ".recipe.yaml.tmp",
        ".recipe.yaml.12.tmp.old",
        "checkpoints/mine.safetensors",
        "checkpoints/.mine.safetensors.12.tmp",
        "checkpoints/state-00000007.safetensors",  # with no manifest at all: not by a kill
        "results/.clean.txt.12.tmp",
        "mine/.clean.json.12.tmp",
    ]
    (run.path / "mine").mkdir()
    for name in names:
        (run.path / name).write_text("mine")
    (run.path / "results" / ".clean.json.12.tmp").symlink_to(tmp_path / "precious")
    (run.path / "results" / ".fgsm.json.12.tmp").mkdir()
    (run.path / "results" / ".pgd.json.12.tmp").touch()
    with run.lock():
        pass
    assert all((run.path / name).read_text() == "mine" for name in names)
    assert (run.path / "results" / ".clean.json.12.tmp").read_text() == "precious"
    assert (run.path / "results" / ".fgsm.json.12.tmp").is_dir()
    assert not (run.path / "results" / ".pgd.json.12.tmp").exists()


def test_a_file_outside_of_run_folders_clears_its_own_leftovers(tmp_path):
    killed(lambda: write_alone(tmp_path / "a.html", b"1"), os, "fsync", writes(".a.html"))
    (tmp_path / ".b.html.12.tmp").touch()
    assert len(left(tmp_path)) == 2
    write_alone(tmp_path / "a.html", b"2")
    assert left(tmp_path) == ["b"]
    clear_leftovers(tmp_path / "nowhere")


def test_a_writer_whose_new_file_is_cleared_at_once_writes_another(tmp_path, monkeypatch):
    """Between the making of a temporary file and its lock, another process may come."""
    fcntl = pytest.importorskip("fcntl")
    original, cleared = fcntl.flock, []

    def late(file, kind):
        if not cleared:
            cleared.append(1)
            clear_leftovers(tmp_path)
            assert not left(tmp_path)
        original(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    write_atomically(tmp_path / "a.json", b"{}")
    assert cleared and (tmp_path / "a.json").read_bytes() == b"{}"
