"""Runs are named by what decides their weights, and are trained once."""

import pytest

from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    ModelSpec,
    ObjectiveSpec,
    OptimizerSpec,
    PerturbationSpec,
    Recipe,
    ValidationSpec,
    override,
)
from advnorm.records import Run
from advnorm.studies import trained_runs
from advnorm.studies.trained_runs import (
    run_name,
    seconds_of,
    start_from_shorter,
    timed,
    train_once,
    training_settings,
)
from advnorm.training import load_data

TINY = Recipe(
    name="tiny",
    data=DataSpec(train=60, test=20),
    model=ModelSpec(options={"depth": 1, "width": 4}),
    objective=ObjectiveSpec(name="standard"),
    epochs=2,
    batch_size=20,
    validation=ValidationSpec(samples=10, steps=1),
)


def name_of(recipe):
    return run_name(recipe, load_data(recipe, root=None).digest())


def test_what_only_evaluates_does_not_change_a_runs_name():
    same = TINY.replace(
        name="b",
        evaluation=EvaluationSpec(conditions=("clean",)),
        perturbation=PerturbationSpec(groups=1),
    )
    assert name_of(TINY) == name_of(same)
    others = ["seed=1", "data.train=40", "epochs=3", "norm.name=none", "optimizer.lr=0.2"]
    names = {name_of(override(TINY, [change])) for change in others}
    assert len(names | {name_of(TINY)}) == 6
    assert training_settings(TINY) != training_settings(TINY.replace(seed=1))


def test_a_setting_at_its_default_does_not_change_a_runs_name():
    assert "momentum" not in training_settings(TINY)
    at_default = TINY.replace(optimizer=OptimizerSpec(momentum=0.9))
    assert training_settings(at_default) == training_settings(TINY)
    schedules = ["{kind: cosine, end: 2}", "{kind: ramp, last: 2}", "{kind: constant}"]
    recipes = [override(TINY, [f"optimizer.schedule={text}"]) for text in schedules]
    assert len({training_settings(recipe) for recipe in recipes}) == 3


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    run = train_once(TINY, tmp_path / "runs")
    assert run.path.name == name_of(TINY) and len(run.epochs()) == 2
    monkeypatch.setattr(trained_runs, "train", None)  # it would fail
    renamed = TINY.replace(name="other", evaluation=EvaluationSpec(samples=5))
    assert train_once(renamed, tmp_path / "runs").path == run.path


@pytest.mark.parametrize("change", ["norm.freeze_epochs=1", "validation.every=3"])
def test_a_run_does_not_start_from_one_that_did_other_things(tmp_path, change):
    short = override(TINY, [change])
    shorter = train_once(short, tmp_path / "runs").path
    path = tmp_path / "longer"
    start_from_shorter(short.replace(epochs=3), path, lambda recipe: shorter)
    assert not path.exists()
    start_from_shorter(TINY.replace(epochs=3), path, lambda recipe: shorter)
    assert len(Run.open(path).epochs()) == 2


@pytest.mark.parametrize("text", ["", "[" * 100_000, "NaN", "-5", "1e999", "9" * 5000])
def test_a_damaged_file_of_the_time_counts_as_none(tmp_path, text):
    (tmp_path / "recipe.yaml").touch()  # else it is no run, and nothing is written there
    (tmp_path / "seconds.json").write_text(text)
    assert seconds_of(tmp_path) == 0.0
    with timed(tmp_path):
        pass
    assert 0 < seconds_of(tmp_path) < 60
