"""The transfer matrix of runs."""

import json
import sys

import pytest

from advnorm import cli
from advnorm.recipe import EvaluationSpec, EvaluationThreatSpec, parse
from advnorm.records import Run, TransferMatrix
from advnorm.runs import evaluate_run, transfer_runs
from advnorm.training import train


def recipe(norm, **more):
    return parse(
        {
            "data": {"name": "digits", "train": 96, "test": 40, **more},
            "model": {"name": "mlp", "options": {"depth": 1, "width": 8}},
            "norm": {"name": norm},
            "epochs": 1,
            "validation": {"samples": 10, "steps": 2},
            "attack": {"steps": 2},
            "evaluation": {
                "conditions": ["pgd-3"],
                "threat": {"eps": [0.1]},
                "samples": 30,
            },
        }
    )


def test_runs_transfer_between_each_other(tmp_path, monkeypatch, capsys):
    recipes = [recipe("batch"), recipe("none")]
    runs = []
    for name, each in zip(("one", "two"), recipes, strict=True):
        train(each, tmp_path / name)
        runs.append(Run.open(tmp_path / name))
    (matrix,) = transfer_runs(runs, recipes)
    assert matrix.sources == matrix.targets == ("one", "two")
    for number, (run, each) in enumerate(zip(runs, recipes, strict=True)):
        (alone,) = evaluate_run(run, each)
        assert matrix.accuracies[number][number] == alone.accuracy
        assert matrix.weights[run.path.name] == alone.weights
    l2 = EvaluationSpec(threat=EvaluationThreatSpec(norm="l2", eps=(0.5,)))
    other = [each.replace(evaluation=l2) for each in recipes]
    (matrix_l2,) = transfer_runs(runs, other)
    assert (matrix_l2.threat.norm, matrix_l2.threat.eps) == ("l2", 0.5)
    (alone,) = evaluate_run(runs[0], other[0])
    assert matrix_l2.accuracies[0][0] == alone.accuracy
    out = tmp_path / "matrix.json"
    command = ["transfer", *map(str, (run.path for run in runs)), "--out", str(out)]
    more = ["--set", "conditions=[pgd-3]", "--set", "eps=[0.1]", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["advnorm", *command, *more])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    printed = capsys.readouterr().out
    written = TransferMatrix.model_validate(json.loads(out.read_text())[0])
    assert written.accuracies == matrix.accuracies
    assert str(written) in printed and "n=30" in printed


def test_runs_on_other_test_data_are_refused(tmp_path):
    recipes = [recipe("none"), recipe("none", test=30)]
    runs = []
    for name, each in zip(("one", "two"), recipes, strict=True):
        train(each, tmp_path / name)
        runs.append(Run.open(tmp_path / name))
    with pytest.raises(ValueError, match="one and two have different test data"):
        transfer_runs(runs, recipes)
    with pytest.raises(ValueError, match="at least two runs"):
        transfer_runs(runs[:1], recipes[:1])
    with pytest.raises(ValueError, match="named twice"):
        transfer_runs([runs[0], runs[0]], [recipes[0]] * 2)
