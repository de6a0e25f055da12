"""A run folder: begun, locked, and resumed with the same data."""

import os
import signal

import numpy as np
import pytest

from advnorm.recipe import override
from advnorm.runs import evaluate_run
from advnorm.training import train


def test_a_beginning_that_was_cut_short_does_not_stand_in_the_way(tiny, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    train(override(tiny, ["epochs=1"]), tmp_path / "run")


def test_two_processes_cannot_work_in_one_folder(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    ready, begun = os.pipe()
    pid = os.fork()
    if not pid:
        with run.lock():
            os.write(begun, b".")
            signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)  # the child has the lock
        for work in (
            lambda: train(override(tiny, ["epochs=1"]), tmp_path / "run", resume=True),
            lambda: evaluate_run(run, override(tiny, ["epochs=1"])),
        ):
            with pytest.raises(ValueError, match="another process is working in"):
                work()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    evaluate_run(run, override(tiny, ["epochs=1"]))


@pytest.fixture
def npz(tmp_path):
    """Return a function that writes a small data set and its recipe's settings."""

    def write(seed=0, flip=0):
        rng = np.random.default_rng(seed)
        arrays = {}
        for part, count in (("train", 80), ("test", 40)):
            labels = np.arange(count) % 2
            images = rng.random((count, 1, 4, 4)) * 0.5 + labels[:, None, None, None] * 0.4
            arrays[f"x_{part}"], arrays[f"y_{part}"] = images.astype(np.float32), labels
        arrays["y_test"][:flip] ^= 1
        np.savez(tmp_path / "data.npz", **arrays)
        return [
            f"data={{name: 'npz:{tmp_path / 'data.npz'}'}}",
            "epochs=1",
            "batch_size=16",
        ]

    return write


def test_other_data_under_the_same_name_is_noticed(tiny, tmp_path, npz):
    recipe = override(tiny, npz())
    run = train(recipe, tmp_path / "run")
    before = {r.key: r.accuracy.correct for r in evaluate_run(run, recipe)}
    npz(flip=8)
    after = {r.key: r.accuracy.correct for r in evaluate_run(run, recipe)}
    assert before["clean"] != after["clean"], "verdicts of the old data were returned"
    with pytest.raises(ValueError, match="begun with other data"):
        train(recipe, tmp_path / "run", resume=True)
