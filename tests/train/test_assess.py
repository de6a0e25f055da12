"""How a run is evaluated: another norm, options of attacks, curves, stops in between."""

import pytest

from advnorm.recipe import RecipeError, override
from advnorm.records import Run
from advnorm.train import assess, train


def test_a_run_is_evaluated_in_another_norm_and_with_options(tiny, tmp_path):
    run = train(tiny, tmp_path / "run")
    attacks = "[pgd-4+random+step=1/16, pgd-1..4]"
    changes = ["evaluation.norm=l2", "evaluation.eps=[0.5]"]
    recipe = override(tiny, [f"evaluation.attacks={attacks}", *changes])
    one, curve = assess(run, recipe)
    assert one.threat.norm == curve.threat.norm == "l2" and one.threat.eps == 0.5
    assert one.settings["step_size"] == 1 / 16 and one.settings["target"] == "random"
    assert list(curve.curve) == [1, 2, 4] and curve.curve[4] == curve.accuracy
    assert Run.open(run.path).result(curve.key) == curve
    assert curve.curve == run.verdicts(curve.key).accuracies([1, 2, 4])
    with pytest.raises(RecipeError, match=r"give evaluation\.eps too"):
        assess(run, override(recipe, ["evaluation.eps=[]"]))


def test_radius_0_is_the_clean_accuracy_also_of_a_run(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    changes = ["evaluation.eps=[0, 0.1]", "evaluation.attacks=[clean, pgd-3, pgd-1..2]"]
    clean, none, some, zero, _ = assess(run, override(tiny, changes))
    assert none.threat.eps == zero.threat.eps == 0 and some.threat.eps == 0.1
    assert none.accuracy == zero.accuracy == clean.accuracy
    assert zero.curve == {1: clean.accuracy, 2: clean.accuracy}


def test_an_edited_recipe_is_named_where_the_weights_do_not_fit(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    wider = override(tiny, ["epochs=1", "model.options.width=9"])
    with pytest.raises(ValueError, match=r"recipe\.yaml is not the recipe"):
        assess(run, wider)


def test_metrics_that_are_no_text_are_named(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    (run.path / "metrics.jsonl").write_bytes(b"\x9d\xff")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
        run.epochs()
