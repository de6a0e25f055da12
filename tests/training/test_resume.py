"""A run that was stopped and resumed is bitwise the run that was not."""

import os
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from advnorm.progress import Quiet
from advnorm.recipe import RecipeError, override
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import StoppedError, checkpoints, train, validate
from advnorm.training.run import how_to_resume
from advnorm.training.stop import Stop


class SignalAt(Quiet):
    """Sends a real signal to this process after a number of steps."""

    def __init__(self, step: int, signum: int = signal.SIGTERM) -> None:
        self.step, self.signum = step, signum

    def update(self, done: int, total: int, text: str) -> None:
        if done == self.step:
            os.kill(os.getpid(), self.signum)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a function that trains a recipe without a stop, once a recipe."""
    runs = {}

    def make(recipe):
        key = repr(recipe)
        if key not in runs:
            runs[key] = train(recipe, tmp_path_factory.mktemp("whole") / "run")
        return runs[key]

    return make


# Three epochs of three steps: mid-epoch, the last batch of an epoch, the last batch of all.
@pytest.mark.parametrize("step", range(1, 10))
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_stopped_after_any_step_and_resumed_is_bitwise_the_same(
    tiny, whole, fingerprint, tmp_path, step, optimizer
):
    recipe = override(tiny, [f"optimizer.name={optimizer}"])
    out = tmp_path / "run"
    with pytest.raises(StoppedError) as stopped:
        train(recipe, out, progress=SignalAt(step))
    assert stopped.value.resume == how_to_resume(out)
    resumed = train(recipe, out, resume=True)
    assert fingerprint(resumed) == fingerprint(whole(recipe))


@pytest.mark.parametrize("judged", [1, 2, 3, 4])
def test_stopped_during_validation_and_resumed_is_bitwise_the_same(
    tiny, whole, fingerprint, tmp_path, judged, monkeypatch
):
    """Two cells a validation: the fourth batch is the second epoch's robust one."""
    calls = []
    original = validate.run_condition

    def judge(*args, **kwargs):
        calls.append(1)
        if len(calls) == judged:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    monkeypatch.setattr(validate, "run_condition", judge)
    with pytest.raises(StoppedError):
        train(tiny, tmp_path / "run", progress=Quiet())
    monkeypatch.undo()
    resumed = train(tiny, tmp_path / "run", resume=True)
    assert fingerprint(resumed) == fingerprint(whole(tiny))


def test_a_job_in_the_background_of_a_script_can_be_interrupted_too():
    """A shell without job control starts it with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(StoppedError, match="SIGINT"), Stop() as stop:
            stop.check()
            os.kill(os.getpid(), signal.SIGINT)
            stop.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGTERM])
def test_a_hangup_after_a_first_signal_is_ignored_until_all_is_saved(first):
    """A shell and its terminal send one each; systemd sends it right after SIGTERM."""
    acted = []
    before = signal.signal(signal.SIGHUP, lambda *_: acted.append(1))
    try:
        own = signal.getsignal(signal.SIGHUP)
        with Stop() as stop:
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(StoppedError, match=signal.Signals(first).name):
                stop.check()
        assert not acted and signal.getsignal(signal.SIGHUP) is own
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            stop.check()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_several_stops_and_dropout_and_mixup_and_augmentation(
    tiny, whole, fingerprint, tmp_path
):
    changes = ["data.mixup=0.4", "data.augment=crop_flip", "data.train=80", "seed=3"]
    recipe = override(tiny, changes)
    out, resume = tmp_path / "run", False
    for step in (1, 3, 4):
        with pytest.raises(StoppedError):
            train(recipe, out, progress=SignalAt(step), resume=resume)
        resume = True
    assert fingerprint(train(recipe, out, resume=True)) == fingerprint(whole(recipe))


def test_killed_between_checkpoints_it_goes_on_from_the_last_one(
    tiny, whole, fingerprint, tmp_path
):
    """A kill leaves no farewell: only what was on disk before counts."""
    recipe = override(tiny, ["checkpoint_seconds=1e-9"])
    out = tmp_path / "run"
    pid = os.fork()
    if not pid:
        try:
            train(recipe, out, progress=SignalAt(5, signal.SIGKILL))
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert (
        checkpoints.load(out / "checkpoints", "state", warnings=[]).facts["state"]["step"]
        == 4
    )
    assert fingerprint(train(recipe, out, resume=True)) == fingerprint(whole(recipe))


def test_resuming_a_finished_run_changes_nothing(tiny, fingerprint, tmp_path):
    before = fingerprint(train(tiny, tmp_path / "run"))
    assert fingerprint(train(tiny, tmp_path / "run", resume=True)) == before


def test_resuming_with_another_recipe_refuses_and_names_the_keys(tiny, tmp_path):
    train(override(tiny, ["epochs=1"]), tmp_path / "run")
    changed = override(tiny, ["epochs=1", "attack.steps=3", "optimizer.lr=0.01"])
    with pytest.raises(RecipeError) as error:
        train(changed, tmp_path / "run", resume=True)
    assert "attack.steps: 2 -> 3" in str(error.value)
    assert "optimizer.lr: 0.05 -> 0.01" in str(error.value)
    assert "epochs" not in str(error.value).partition("Go on")[0]


def test_an_existing_run_folder_is_not_overwritten(tiny, fingerprint, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    before = fingerprint(run)
    with pytest.raises(FileExistsError, match="--resume"):
        train(override(tiny, ["epochs=1"]), tmp_path / "run")
    assert fingerprint(run) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="not empty"):
        train(tiny, tmp_path / "mine")


def test_the_callers_random_state_is_left_alone(tiny, tmp_path):
    import torch

    before = torch.get_rng_state()
    train(override(tiny, ["epochs=1"]), tmp_path / "run")
    assert torch.equal(before, torch.get_rng_state())


class StopAfter(Quiet):
    """Raises after a number of judged batches, as a crash would."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def update(self, done: int, total: int, text: str) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def records(run: Run) -> list[object]:
    results = [
        r.model_copy(update={"seconds": 0.0, "queries": 0, "gradients": 0})
        for r in run.results()
    ]
    return [results, [run.verdicts(r.key) for r in results]]


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 7, 11, 15])
def test_an_evaluation_that_was_stopped_gives_the_same_verdicts(
    tiny, whole, tmp_path, batches
):
    fresh = shutil.ignore_patterns("results", "verdicts", "examples")
    out = shutil.copytree(whole(tiny).path, tmp_path / "run", ignore=fresh)
    evaluate_run(whole(tiny), tiny)
    run = Run.open(out)
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(run, tiny, progress=StopAfter(batches))
    evaluate_run(run, tiny)
    assert records(run) == records(whole(tiny))
    for result in run.results():
        ours, theirs = run.examples(result.key), whole(tiny).examples(result.key)
        assert ours.exists() == theirs.exists() == (result.threat is not None)
        assert not ours.exists() or ours.read_bytes() == theirs.read_bytes()


def test_other_settings_start_an_evaluation_anew(tiny, whole):
    run = whole(tiny)
    evaluate_run(run, tiny)
    fewer = override(tiny, ["evaluation.samples=20"])
    assert {r.accuracy.n for r in evaluate_run(run, fewer)} == {20}
    assert {r.accuracy.n for r in evaluate_run(run, tiny)} == {40}


def test_a_run_goes_on_without_the_one_that_it_started_from(tiny, tmp_path):
    first = train(tiny, tmp_path / "first")
    recipe = override(tiny, [f"init_from={first.path}", "epochs=2"])
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "run", progress=SignalAt(4))
    shutil.rmtree(first.path)
    assert len(train(recipe, tmp_path / "run", resume=True).epochs()) == 2
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        train(recipe, tmp_path / "other")


def test_a_run_without_its_checkpoints_does_not_start_over_in_silence(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    shutil.rmtree(run.checkpoints)
    run.checkpoints.mkdir()
    with pytest.raises(ValueError, match=r"lost its checkpoints.*after epoch 1"):
        train(override(tiny, ["epochs=1"]), tmp_path / "run", resume=True)
    assert len(run.epochs()) == 1


def test_the_command_that_goes_on_can_be_pasted(tmp_path):
    assert shlex.split(how_to_resume(tmp_path / "my runs"))[-2:] == [
        str(tmp_path / "my runs"),
        "--resume",
    ]


@pytest.mark.parametrize(
    ("hosts", "ranks", "begun"),
    [
        ("1", "1", "advnorm train"),
        ("1", "2", "torchrun --nproc-per-node 2 -m advnorm train"),
        ("4", "2", "torchrun --nnodes 4 --nproc-per-node 2 ... -m advnorm train"),
    ],
)
def test_the_command_that_goes_on_has_as_many_ranks(monkeypatch, hosts, ranks, begun):
    """With fewer, batch norms would see other batches, and the result would differ."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    monkeypatch.setenv("GROUP_WORLD_SIZE", hosts)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setenv("WORLD_SIZE", str(int(hosts) * int(ranks)))
    assert how_to_resume(Path("runs/a")).startswith(f"{begun} runs/a/recipe.yaml ")
