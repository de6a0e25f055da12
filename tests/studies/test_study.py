"""advnorm study: combinations, resumption, budget, bad input; on a few digits."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from torch import nn

import advnorm
from advnorm import cli
from advnorm.data import load
from advnorm.recipe import DataSpec, EvaluationSpec, ObjectiveSpec, ValidationSpec
from advnorm.recipes import find
from advnorm.records import Run, Study, read_record
from advnorm.report import study_text, write_study
from advnorm.studies import parse_over, study
from advnorm.studies.combinations import combine, texts_of
from advnorm.studies.run_numbers import worst_case
from advnorm.training.components import evaluation_threats

TINY = [
    *("data.train=200", "data.test=40", "epochs=2", "batch_size=32"),
    *("validation.samples=50", "validation.steps=1", "attack.steps=1"),
    *("evaluation.conditions=[clean, pgd-2, fgsm]", "evaluation.threat.eps=[0.15]"),
]
OVER = {"norm.name": ["batch", "group", "none"]}


@pytest.fixture
def tiny():
    return find("digits.pgd").replace(
        data=DataSpec(train=200, test=40),
        epochs=2,
        batch_size=32,
        validation=ValidationSpec(samples=50, steps=1),
        evaluation=EvaluationSpec(conditions=("clean", "pgd-2", "fgsm")),
    )


def without_time(record: Study):
    """Return a record without what a clock decides."""
    values = json.loads(record.model_dump_json(exclude={"seconds", "machine"}))
    for row in values["rows"].values():
        del row["numbers"]["training minutes"]
    return values


def test_robust_is_the_worst_case_over_all_attacks_sample_by_sample(tiny, tmp_path):
    result = study(tiny, {"norm.name": ["batch", "none"]}, out=tmp_path, seeds=1)
    for row in result.rows.values():
        run = Run.open(tmp_path / "runs" / row.runs[0])
        results = [r for r in run.results() if r.threat and r.threat.eps == 0.15]
        assert {r.condition for r in results} == {"pgd-2", "fgsm"}
        both = [all(run.verdicts(r.key).robust[i] for r in results) for i in range(40)]
        assert worst_case(run, results).correct == sum(both)
        column = row.numbers[result.headline]
        assert column.values[0] == pytest.approx(100 * sum(both) / 40)
        assert column.values[0] <= min(100 * r.accuracy.fraction for r in results)
    assert result.headline == "robust, linf 0.15"  # the radius of training, of four


def test_the_pages_have_the_answer_and_every_combination(tiny, tmp_path):
    result = study(tiny, OVER, out=tmp_path, seeds=1)
    text = study_text(result)
    page = write_study(result, tmp_path / "study.html").read_text()
    for label in result.rows:
        assert label in text
        assert label in page
    assert result.answer[0] in text
    assert "Pareto front" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_two_processes_give_the_record_of_one(tiny, tmp_path):
    alone = study(tiny, OVER, out=tmp_path / "a", seeds=1)
    both = study(tiny, OVER, out=tmp_path / "b", seeds=1, on=2)
    assert without_time(alone) == without_time(both)


def test_combinations_that_make_no_sense_are_named(tiny):
    over = parse_over(["norm.name=batch,mixture,dual", "objective.name=pgd,mixed"])
    combinations = combine(tiny, over)
    assert list(combinations.recipes) == [
        "batch, pgd",
        "batch, mixed",
        "mixture, mixed",
        "dual, mixed",
    ]
    assert "same as batch norm" in combinations.skipped["mixture, pgd"]
    assert "needs both" in combinations.skipped["dual, pgd"]
    mixed = tiny.replace(objective=ObjectiveSpec(name="mixed"))
    same = combine(mixed, {"norm.options.eps": ["1e-5", "0.1", "0.10"]})
    assert same.skipped == {"0.10": "the same training as 0.1"}


def test_an_objective_keeps_the_settings_that_it_has(tiny):
    recipe = tiny.replace(objective=ObjectiveSpec(name="mixed_kl", likelihood=0.01))
    recipes = combine(recipe, {"objective.name": ["pgd", "mixed_kl"]}).recipes
    assert recipes["pgd"].objective.likelihood is None  # which one domain has not
    assert recipes["mixed_kl"].objective.likelihood == 0.01


def test_all_are_tested_at_the_radii_of_the_recipe(tiny):
    """Also combinations that are trained at other radii, or against another norm."""
    wanted = evaluation_threats(tiny)
    for key, values in {
        "threat.eps": ["0.05", "0.1"],
        "threat.norm": ["linf", "l2"],
    }.items():
        recipes = combine(tiny, {key: values}).recipes
        assert list(recipes) == values
        assert [evaluation_threats(recipe) for recipe in recipes.values()] == [wanted] * 2


def test_a_branch_is_chosen_where_there_are_branches(tiny):
    clean = tiny.evaluation.model_copy(update={"branch": "clean"})
    recipe = tiny.replace(objective=ObjectiveSpec(name="mixed"), evaluation=clean)
    recipes = combine(recipe, {"norm.name": ["batch", "mixture", "affine", "dual"]}).recipes
    branches = {label: each.evaluation.branch for label, each in recipes.items()}
    assert branches["mixture"] == branches["affine"] == "clean"
    assert branches["batch"] == branches["dual"] == "adversarial"  # which asks for nothing


def test_values_of_python_are_taken_as_they_are(tiny):
    over = texts_of({"lr": [0.1, 0.2], "optimizer.nesterov": [True, False]})
    assert over == {"optimizer.lr": ["0.1", "0.2"], "optimizer.nesterov": ["true", "false"]}
    recipes = combine(tiny, over).recipes
    assert recipes["0.2, true"].optimizer.lr == 0.2
    assert recipes["0.2, true"].optimizer.nesterov is True
    with pytest.raises(ValueError, match=r"norm\.name: give a list of values .* 'batch'"):
        study(tiny, {"norm.name": "batch"})


def test_the_branch_of_a_mixture_norm_is_named(tiny, tmp_path):
    mixed = tiny.replace(objective=ObjectiveSpec(name="mixed"), epochs=1)
    result = study(mixed, {"norm.name": ["batch", "mixture"]}, out=tmp_path, seeds=1)
    assert [row.branch for row in result.rows.values()] == ["", "adversarial"]
    assert "of the adversarial branch: mixture" in study_text(result)


class FailsWithGroupNorm(nn.Module):
    """A network that cannot be used with group norm, as is seen in training only."""

    def __init__(self, norm, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), norm(64), nn.Linear(64, classes))

    def forward(self, images):
        if isinstance(self.layers[1], nn.GroupNorm) and not images.is_meta:
            raise ValueError("no group norm today")
        return self.layers(images)


def test_a_run_that_fails_does_not_stop_the_others(tiny, tmp_path):
    result = study(tiny, OVER, out=tmp_path, seeds=1, model=FailsWithGroupNorm)
    assert list(result.rows) == ["batch", "none"]
    assert "no group norm today" in result.failed["group, seed 0"]


def test_a_combination_that_cannot_be_built_is_left_out_with_the_reason(tiny, tmp_path):
    def build(norm, classes):
        layer = norm(64)
        if isinstance(layer, nn.GroupNorm):
            raise RuntimeError("no group norm here")
        return nn.Sequential(nn.Flatten(), layer, nn.Linear(64, classes))

    result = study(tiny, OVER, out=tmp_path, seeds=1, model=build)
    assert list(result.rows) == ["batch", "none"]
    assert "no group norm here" in result.skipped["group"]


def test_data_and_model_of_the_user_s_own(tiny, tmp_path):
    digits = load("digits").test
    data = (digits.images, digits.labels)

    def build(norm, classes):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), norm(16), nn.Linear(16, classes)
        )

    result = advnorm.study(tiny, OVER, out=tmp_path, seeds=1, model=build, data=data)
    assert set(result.rows) == {"batch", "group", "none"}
    with pytest.raises(ValueError, match="stay in this process"):
        study(tiny, OVER, out=tmp_path, on=2, model=build)


def test_a_budget_stops_what_is_clearly_behind_and_then_seeds(tiny, tmp_path):
    """A learning rate of 1e-9 learns nothing, and is seen after half of the epochs."""
    over = {"optimizer.lr": ["0.1", "0.05", "1e-9"]}
    recipe = tiny.replace(data=DataSpec(train=1000), validation=ValidationSpec(samples=200))
    result = study(recipe, over, out=tmp_path, seeds=3, budget=1e-9)
    assert list(result.dropped) == ["1e-9"]
    assert "after 1 of 2 epochs" in result.dropped["1e-9"]
    assert all(row.seeds == (0,) for row in result.rows.values())
    assert "allows 1 of 3 seeds" in result.rows["0.1"].note
    more = study(recipe, over, out=tmp_path, seeds=2, budget=1000.0)
    assert more.rows["0.1"].seeds == (0, 1)
    assert (
        more.rows["0.1"].numbers["clean"].values[0]
        == result.rows["0.1"].numbers["clean"].values[0]
    )


def test_a_budget_counts_the_runs_of_this_study_once(tiny, tmp_path):
    """Four runs of an hour each, that are finished; others in the folder took days."""
    recipe, over = tiny.replace(epochs=1), {"norm.name": ["batch", "none"]}
    whole = study(recipe, over, out=tmp_path, seeds=2)
    runs = tmp_path / "runs"
    for row in whole.rows.values():
        for name in row.runs:
            (runs / name / "seconds.json").write_text("3600")
    (runs / "other").mkdir()
    (runs / "other" / "seconds.json").write_text("1e6")
    again = study(recipe, over, out=tmp_path, seeds=2, budget=4.5)
    assert [row.seeds for row in again.rows.values()] == [(0, 1)] * 2
    fewer = study(recipe, over, out=tmp_path, seeds=2, budget=3.5)
    assert [row.seeds for row in fewer.rows.values()] == [(0,)] * 2


def test_a_larger_training_radius_is_not_behind_because_of_its_validation(tiny, tmp_path):
    """Held-out accuracies at eps 0.01 and 0.9 say nothing about each other."""
    over = {"threat.eps": ["0.01", "0.9"]}
    recipe = tiny.replace(data=DataSpec(train=1000), validation=ValidationSpec(samples=200))
    result = study(recipe, over, out=tmp_path, seeds=1, budget=1000.0)
    assert result.dropped == {}
    assert list(result.rows) == ["0.01", "0.9"]


@pytest.mark.slow
@pytest.mark.ci
def test_a_study_that_was_killed_10_times_gives_the_same_table(tiny, tmp_path):
    words = ["study", "digits.pgd", "--over", "norm.name=batch,group,none", "--seeds", "3"]
    words += [f"--set={setting}" for setting in TINY]
    command = [sys.executable, "-m", "advnorm", *words, "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = 0
    for number in range(10):
        process = subprocess.Popen(
            [*command, tmp_path / "killed"], env=environment, stdout=-3, stderr=-3
        )
        runs, limit = tmp_path / "killed" / "runs", time.monotonic() + 60
        while process.poll() is None and time.monotonic() < limit:
            if len(list(runs.glob("*/metrics.jsonl"))) > number * 0.8:
                time.sleep(0.03 * number)
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed == 10
    for name in ("killed", "whole"):
        subprocess.run(
            [*command, tmp_path / name], env=environment, check=True, stdout=-3, stderr=-3
        )
    records = [read_record(tmp_path / k / "study.json", Study) for k in ("killed", "whole")]
    assert without_time(records[0]) == without_time(records[1])


@pytest.mark.slow
def test_ray_gives_the_record_of_one_process(two_workers, tiny, tmp_path):
    with_ray = study(tiny, OVER, out=tmp_path / "ray", seeds=1, on="ray")
    alone = study(tiny, OVER, out=tmp_path / "alone", seeds=1)
    assert without_time(with_ray) == without_time(alone)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--over", "norm.name"], "--over takes KEY=VALUE,VALUE"),
        (["--over", "norm.name=batch,,none"], "a value between two commas is missing"),
        (["--over", "norm.name=batch"], "at least two combinations, and 1 makes sense"),
        (["--over", "seed=0,1"], "seeds are not compared"),
        (["--over", "norm.name=batch,bach"], "did you mean 'batch'"),
        (["--over", "norm.name=batch,none", "--seeds", "0"], "--seeds 0: at least one"),
        (["--over", "norm.name=batch,none", "--budget", "-1"], "hours, more than 0"),
        (["--over", "norm.name=batch,none", "--budget", "0"], "hours, more than 0"),
        (["--over", "norm.names=batch,none"], "no such key"),
        (
            ["--over", "norm.name=batch,none", "--on", "some"],
            "a number of processes or ray",
        ),
        (["--over", "norm.name=a,b", "--over", "norm.name=c,d"], "is there twice"),
        (
            ["--over", "norm.name=batch,none", "--set", "conditions=[clean, ibp]"],
            "the evaluation has no attack",
        ),
        (
            ["--over", "norm.name=batch,none", "--set", "evaluation.data=mnist-c"],
            "a study tests one data set, and evaluation.data=mnist-c is several",
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_trained(
    words, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        sys,
        "argv",
        ["advnorm", "study", "digits.pgd", *words, "--out", str(tmp_path / "s")],
    )
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    assert stopped.value.code == 2
    assert sentence in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "s").exists()


def test_the_workspace_is_not_a_file(tiny, tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        study(tiny, OVER, out=tmp_path / "f")


def test_the_workspace_is_no_run_folder(tiny, tmp_path):
    (tmp_path / "recipe.yaml").write_text("a run's")
    with pytest.raises(ValueError, match="is a run folder: choose another --out"):
        study(tiny, OVER, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]
