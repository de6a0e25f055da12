"""Every number of a run says how far its training was, where it was not finished."""

import json
import os
import shutil
import signal
import sys

import pytest
import torch
from safetensors.torch import load_file

from advnorm import cli
from advnorm.progress import Quiet
from advnorm.recipe import override, to_yaml
from advnorm.records import Run, TrainingProgress
from advnorm.report import comparison_text
from advnorm.report import write as write_page
from advnorm.runs import (
    audit_run,
    diagnose_run,
    evaluate_run,
    parse_questions,
    perturb_run,
    transfer_runs,
)
from advnorm.training import StoppedError, checkpoints, loop, train
from advnorm.training.completion import is_finished, read_completion


class SignalAt(Quiet):
    """Sends a real signal to this process after a number of steps."""

    def __init__(self, step):
        self.step = step

    def update(self, done, total, text):
        if done == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


class RecordedLines(Quiet):
    """Keeps the lines."""

    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)


@pytest.fixture
def recipe(tiny):
    """Three epochs of three steps."""
    return override(tiny, ["evaluation={conditions: [clean, pgd-2], threat: {eps: [0.1]}}"])


def stopped(recipe, out, step):
    with pytest.raises(StoppedError):
        train(recipe, out, progress=SignalAt(step))
    return Run.open(out)


# After the last step of an epoch, that epoch is not done: its validation is to come.
@pytest.mark.parametrize(
    "step, epochs, steps, words",
    [
        (1, 0, 1, "0 of 3 epochs and 1 step"),
        (3, 0, 3, "0 of 3 epochs and 3 steps"),
        (4, 1, 1, "1 of 3 epochs and 1 step"),
        (8, 2, 2, "2 of 3 epochs and 2 steps"),
    ],
)
def test_a_result_says_how_far_training_was(recipe, tmp_path, step, epochs, steps, words):
    run = stopped(recipe, tmp_path / "run", step)
    last_weights = override(recipe, ["evaluation.weights=last"])
    results = evaluate_run(run, last_weights, progress=(recorded := RecordedLines()))
    assert len(results) == 2
    for result in (*results, *run.results()):
        assert result.training == TrainingProgress(epochs=epochs, steps=steps, planned=3)
    for result in results:
        assert any(
            line.startswith(result.key) and line.endswith(f"(unfinished: {words})")
            for line in recorded.lines
        )


def test_a_run_that_was_stopped_before_any_step(recipe, tmp_path, monkeypatch):
    def at_once(*args, stop, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        stop.check()

    monkeypatch.setattr("advnorm.training.run.fit", at_once)
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    (result, _) = evaluate_run(run, override(recipe, ["evaluation.weights=last"]))
    assert str(result.training) == "0 of 3 epochs"
    with pytest.raises(FileNotFoundError, match=r"evaluation\.weights=last"):
        evaluate_run(run, recipe)


def test_best_weights_are_of_a_run_that_is_so_far(recipe, tmp_path):
    run = stopped(recipe, tmp_path / "run", 7)
    for result in evaluate_run(run, recipe):
        assert result.weights.startswith("best-0000000")
        assert str(result.training) == "2 of 3 epochs and 1 step"


def test_the_mark_goes_with_the_end_of_training(recipe, tmp_path, monkeypatch):
    """Also where the best weights stay the same, whose verdicts are not made anew."""
    monkeypatch.setattr(
        loop, "_score", lambda experiment, checked: 1.0
    )  # the first stay the best
    run = stopped(recipe, tmp_path / "run", 7)
    before = evaluate_run(run, recipe)
    assert all(result.training.mark for result in before)
    train(recipe, run.path, resume=True)
    monkeypatch.setattr(
        "advnorm.runs.condition.run_condition", None
    )  # nothing is attacked again
    after = evaluate_run(run, recipe)
    assert [r.weights for r in after] == [r.weights for r in before]
    for result in (*after, *run.results()):
        assert (
            result.training == TrainingProgress(epochs=3, planned=3)
            and not result.training.mark
        )
    assert "unfinished" not in comparison_text([run])


def test_verdicts_of_unfinished_weights_are_not_taken_for_others(recipe, tmp_path):
    last = override(recipe, ["evaluation.weights=last"])
    run = stopped(recipe, tmp_path / "run", 4)
    before = {r.key: r for r in evaluate_run(run, last)}
    train(recipe, run.path, resume=True)
    after = {r.key: r for r in evaluate_run(run, last)}
    whole = train(recipe, tmp_path / "whole")
    alone = {r.key: r for r in evaluate_run(whole, last)}
    for key, result in after.items():
        assert result.fingerprint != before[key].fingerprint
        assert run.verdicts(key) == whole.verdicts(key)
        assert result.accuracy == alone[key].accuracy


def test_every_record_of_a_run_has_the_mark(recipe, tmp_path):
    run, whole = stopped(recipe, tmp_path / "run", 7), train(recipe, tmp_path / "whole")
    few = override(recipe, ["evaluation.samples=10", "perturbation.radii=[0.1]"])
    mark = "(unfinished: 2 of 3 epochs and 1 step)"
    (audit,) = audit_run(run, override(few, ["evaluation.threat.eps=[]"]), suite=["pgd-2"])
    assert str(audit).count(mark) == 3 and run.audits() == [audit]
    (answer,) = diagnose_run(run, few, parse_questions(["dead"]), samples=10)
    assert str(answer).count(mark) == len(answer.numbers)
    assert run.diagnoses() == [answer]
    recorded = RecordedLines()
    for result in perturb_run(run, few, progress=recorded):
        assert result.training == audit.training == answer.training
        assert f"{result.key}: {result.accuracy} {mark}" in recorded.lines
    certified = override(few, ["evaluation.conditions=[ibp]"])
    assert evaluate_run(run, certified)[0].training == audit.training
    attacked = [override(few, ["evaluation.conditions=[pgd-2]"])] * 2
    (matrix,) = transfer_runs([run, whole], attacked)
    assert matrix.training == {
        "run": audit.training,
        "whole": TrainingProgress(epochs=3, planned=3),
    }
    assert str(matrix).count(f"run {mark}") == 2 and "whole (" not in str(matrix)


def test_perturbed_results_lose_the_mark_too(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_score", lambda experiment, checked: 1.0)
    few = override(recipe, ["evaluation.samples=10", "perturbation.radii=[0.1]"])
    run = stopped(few, tmp_path / "run", 7)
    before = perturb_run(run, few)
    train(few, run.path, resume=True)
    module = sys.modules["advnorm.runs.perturb"]
    monkeypatch.setattr(module, "run_perturbed", None)
    after = perturb_run(run, few)
    assert all(r.training.mark for r in before) and not any(r.training.mark for r in after)
    assert [r.fingerprint for r in after] == [r.fingerprint for r in before]


def test_a_finished_run_has_no_mark_anywhere(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    recorded = RecordedLines()
    evaluate_run(run, recipe, progress=recorded)
    assert "unfinished" not in "\n".join([*recorded.lines, comparison_text([run])])
    assert "unfinished: " not in write_page([run], tmp_path / "page.html").read_text()


def test_a_kill_after_the_last_line_and_before_the_last_weights_is_no_end(recipe, tmp_path):
    """All epochs are on record then, but the weights of the last are not."""
    out = tmp_path / "run"
    original = loop._epoch_text
    pid = os.fork()
    if not pid:

        def deadly(line, epochs):  # after the line, before the checkpoint
            if line.epoch == epochs:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(line, epochs)

        loop._epoch_text = deadly
        torch.set_num_threads(1)  # a fork has no other threads to wait for
        try:
            train(recipe, out)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    run = Run.open(out)
    assert len(run.epochs()) == 3 and not is_finished(run, 3)
    assert read_completion(run, 3) == TrainingProgress(epochs=2, planned=3)
    (result, _) = evaluate_run(run, recipe)
    assert result.training.mark
    assert is_finished(train(recipe, out, resume=True), 3)


def test_without_states_the_epochs_on_record_count(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    newest = max(run.checkpoints.glob("state-*.safetensors"))
    newest.write_bytes(b"damaged")
    assert read_completion(run, 3) == TrainingProgress(epochs=2, planned=3)
    for path in run.checkpoints.glob("state-*"):
        path.unlink()
    assert read_completion(run, 3) == TrainingProgress(epochs=3, planned=3)
    assert evaluate_run(run, recipe)[0].training.finished
    (run.path / "metrics.jsonl").unlink()
    assert read_completion(run, 3) is None and not is_finished(run, 3)
    assert evaluate_run(run, override(recipe, ["seed=1"]))[0].training is None


@pytest.mark.parametrize(
    "facts", [{}, {"state": 3}, {"state": {"epoch": "x", "seen": 0}}, {"state": {}}]
)
def test_states_that_say_nothing_are_passed_over(recipe, tmp_path, facts):
    run = train(recipe, tmp_path / "run")
    weights = load_file(max(run.checkpoints.glob("state-*.safetensors")))
    checkpoints.save(run.checkpoints, "state", 10**7, weights, facts)
    assert read_completion(run, 3) == TrainingProgress(epochs=3, planned=3)
    last = override(recipe, ["evaluation.weights=last"])
    assert evaluate_run(run, last)[0].training is None, "it is of these weights"


def test_a_pipe_in_place_of_a_state_is_not_waited_for(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    newest = max(run.checkpoints.glob("state-*.safetensors"))
    newest.unlink()
    os.mkfifo(newest)
    assert read_completion(run, 3) == TrainingProgress(epochs=2, planned=3)
    manifest = newest.with_suffix(".json")
    manifest.unlink()
    os.mkfifo(manifest)
    assert checkpoints.newest(run.checkpoints, "last") == ""


def test_a_record_without_the_field_is_read(recipe, tmp_path):
    run = train(recipe, tmp_path / "run")
    evaluate_run(run, recipe)
    for path in (run.path / "results").glob("*.json"):
        record = json.loads(path.read_text())
        del record["training"]
        path.write_text(json.dumps(record))
    assert {result.training for result in run.results()} == {None}
    assert "*" not in comparison_text([run]), "the run itself tells that it is finished"
    assert [r.training.finished for r in evaluate_run(run, recipe)] == [True, True]


def test_a_start_from_an_unfinished_run_is_said(recipe, tmp_path):
    run = stopped(recipe, tmp_path / "run", 7)
    tuned, recorded = (
        override(recipe, [f"init_from={run.path}", "epochs=1"]),
        RecordedLines(),
    )
    train(tuned, tmp_path / "tuned", progress=recorded)
    assert (
        f"init_from: {run.path} is unfinished: 2 of 3 epochs and 1 step" in recorded.lines
    )
    train(recipe, run.path, resume=True)
    shutil.rmtree(tmp_path / "tuned")
    train(tuned, tmp_path / "tuned", progress=(recorded := RecordedLines()))
    assert not any("unfinished" in line for line in recorded.lines)


def test_the_commands_print_the_mark_beside_each_number(
    recipe, tmp_path, monkeypatch, capsys
):
    run = stopped(recipe, tmp_path / "run", 7)
    assert to_yaml(recipe) == run.recipe_text()
    monkeypatch.setattr("sys.argv", ["advnorm", "evaluate", str(run.path)])
    with pytest.raises(SystemExit):
        cli.main()
    table = capsys.readouterr().out
    first, *cells = [line for line in table.splitlines() if "%" in line]
    assert "worst case" in first and "unfinished" in first
    assert len(cells) == 2 and all(line.endswith("*1") for line in cells)
    assert "*1 unfinished: 2 of 3 epochs and 1 step" in table
