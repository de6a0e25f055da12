"""A run folder that is taken away from a process at work."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from advnorm.progress import Quiet
from advnorm.recipe import override
from advnorm.records import Run, RunLostError
from advnorm.runs import audit_run, diagnose_run, evaluate_run, parse_questions, perturb_run
from advnorm.training import StoppedError, train


class At(Quiet):
    """Does something once, after a number of steps or parts."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def update(self, done, total, text):
        if done >= self.step and self.action:
            action, self.action = self.action, None
            action()


def files(folder):
    """Return every file below a folder, with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def remove(out):
    shutil.rmtree(out)


def move(out):
    out.rename(out.with_name("moved"))


def empty(out):
    shutil.rmtree(out)
    out.mkdir()
    (out / "checkpoints").mkdir()


def replace_by_another_run(out):
    copy = shutil.copytree(out, out.with_name("copy"))
    out.rename(out.with_name("moved"))
    copy.rename(out)


WHOLE = [remove, move, empty, replace_by_another_run]


# Three epochs of three steps: in the middle, and after the last step of all.
@pytest.mark.parametrize("step", [4, 9])
@pytest.mark.parametrize("damage", WHOLE)
def test_training_stops_and_writes_nothing_to_what_has_come_in_its_place(
    tiny, tmp_path, damage, step
):
    out, after = tmp_path / "run", {}

    def strike():
        damage(out)
        after.update(files(out) if out.exists() else {})

    with pytest.raises(RunLostError, match=rf"{out} was .* train anew") as lost:
        train(tiny, out, progress=At(step, strike))
    assert "\n" not in str(lost.value)
    assert (files(out) if out.exists() else {}) == after
    if (tmp_path / "moved").exists():  # as the sentence says
        train(tiny, tmp_path / "moved", resume=True)


@pytest.mark.parametrize(
    "name, step, words",
    [
        ("checkpoints", 4, "weights are lost: train anew in another folder"),
        ("checkpoints", 9, "weights are lost: train anew in another folder"),
        ("recipe.yaml", 4, "put a copy back and go on with: advnorm train"),
        ("recipe.yaml", 9, "put a copy back and go on with: advnorm train"),
        ("metrics.jsonl", 4, "the last weights are not; go on with: advnorm train"),
        ("metrics.jsonl", 9, "the last weights are not; go on with: advnorm train"),
        ("checkpoints/best-*", 4, "the last weights are not; go on with: advnorm train"),
    ],
)
def test_training_stops_where_a_part_of_the_folder_is_removed(
    tiny, tmp_path, name, step, words
):
    out, removed = tmp_path / "run", tmp_path / "taken"
    removed.mkdir()

    def strike():
        for path in out.glob(name):
            shutil.move(path, removed / path.name)

    recipe = override(tiny, ["checkpoint_seconds=1e-9"])
    with pytest.raises(RunLostError) as lost:
        train(recipe, out, progress=At(step, strike))
    assert words in str(lost.value) and str(out) in str(lost.value)
    if name == "recipe.yaml":
        shutil.move(removed / name, out / name)
    if name != "checkpoints":  # the advice works
        train(recipe, out, resume=True)
        assert Run.open(out).epochs()[-1].epoch == 3
        evaluate_run(Run.open(out), recipe)


def test_what_a_resumed_run_has_lost_is_said(tiny, tmp_path):
    class RecordingProgress(Quiet):
        lines = ()

        def line(self, text):
            self.lines += (text,)

    out = tmp_path / "run"
    with pytest.raises(StoppedError):
        train(tiny, out, progress=At(7, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    (out / "metrics.jsonl").unlink()
    for path in out.glob("checkpoints/best-*"):
        path.unlink()
    run = train(tiny, out, resume=True, progress=(recorded := RecordingProgress()))
    assert any("has 0 of 2 epochs" in line for line in recorded.lines)
    assert any("the best weights are lost" in line for line in recorded.lines)
    assert [epoch.epoch for epoch in run.epochs()] == [3]
    assert list(out.glob("checkpoints/best-00000009.json"))


def test_parts_that_training_can_do_without_may_go(tiny, tmp_path):
    out = tmp_path / "run"

    def strike():
        for name in ("results", "verdicts", "examples"):
            (out / name).rmdir()
        (out / "environment.json").unlink()

    run = train(tiny, out, progress=At(4, strike))
    assert len(evaluate_run(run, tiny)) == 5


def test_a_stop_after_the_folder_is_gone_promises_nothing(tiny, tmp_path):
    out = tmp_path / "run"

    def strike():
        shutil.rmtree(out)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(RunLostError):
        train(tiny, out, progress=At(4, strike))


@pytest.fixture
def run(tiny, tmp_path):
    return train(override(tiny, ["epochs=1"]), tmp_path / "run")


def asked(run, recipe, progress):
    return list(
        diagnose_run(run, recipe, parse_questions(["dead", "hessian"]), progress=progress)
    )


class Strikes(Quiet):
    """Damages a folder as soon as something was written to a part of it."""

    def __init__(self, folder, part, action):
        self.folder, self.part, self.action = folder, part, action

    def line(self, text):
        self.update(0, 0, "")

    def update(self, done, total, text):
        if self.action and any(self.folder.glob(self.part)):
            action, self.action = self.action, None
            action()


@pytest.mark.parametrize("damage", WHOLE)
def test_an_evaluation_stops_and_writes_nothing_there(tiny, run, damage):
    after = {}

    def strike():
        damage(run.path)
        after.update(files(run.path) if run.path.exists() else {})

    watch = Strikes(run.path, "verdicts/pgd*", strike)
    with pytest.raises(RunLostError, match="put it back, or name the run"):
        evaluate_run(
            run, override(tiny, ["epochs=1", "evaluation.batch_size=4"]), progress=watch
        )
    assert not watch.action, "the test shows nothing"
    assert (files(run.path) if run.path.exists() else {}) == after


@pytest.mark.parametrize("work", [audit_run, perturb_run, asked])
def test_so_do_the_other_commands(tiny, run, monkeypatch, work):
    """Here the folder is replaced while the model is being read."""
    from advnorm.runs import load as loading

    original = loading.load_data

    def load(*args, **kwargs):
        replace_by_another_run(run.path)
        return original(*args, **kwargs)

    monkeypatch.setattr(loading, "load_data", load)
    before = files(run.path)
    recipe = override(tiny, ["epochs=1", "evaluation.samples=8"])
    with pytest.raises(RunLostError):
        work(run, recipe, progress=Quiet())
    assert files(run.path).keys() - {".lock"} == before.keys() - {".lock"}


def test_the_command_says_one_sentence_and_fails(tmp_path):
    """As it was: rm -rf during training, and the last epochs find the folder gone."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "advnorm", "train", "digits.pgd", "--out", str(out)]
    changes = ["--set=data.train=96", "--set=epochs=3000", "--set=validation.samples=20"]
    with subprocess.Popen(
        [*command, *changes], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.startswith("epoch 2/"):
                out.rename(tmp_path / "moved")
                break
        output, advice = process.stderr.read(), process.stdout.read()
        assert process.wait(60) == 2
    assert re.search(rf"^advnorm: {out} was removed or moved .*train anew$", output, re.M)
    assert not advice and "Traceback" not in output and not out.exists()
