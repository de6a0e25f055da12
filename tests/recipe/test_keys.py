"""Keys that are shortened, misplaced, or of an earlier version."""

import re
from pathlib import Path

import pytest

from advnorm.recipe import (
    EvaluationSpec,
    EvaluationThreatSpec,
    OptimizerSpec,
    Piecewise,
    Recipe,
    RecipeChanges,
    RecipeError,
    ThreatSpec,
    from_yaml,
    full_key,
    override,
    read,
    to_yaml,
)
from advnorm.recipe.keys import RENAMED, keys


@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("lr", "", "optimizer.lr"),
        ("optimizer.lr", "", "optimizer.lr"),
        ("epochs", "", "epochs"),
        ("name", "", "name"),
        ("threat.norm", "", "threat.norm"),
        ("eps", "evaluation", "evaluation.threat.eps"),
        ("norm", "evaluation", "evaluation.threat.norm"),
        ("threat.norm", "evaluation", "evaluation.threat.norm"),
        ("evaluation.threat.norm", "evaluation", "evaluation.threat.norm"),
        ("data", "evaluation", "evaluation.data"),
        ("samples", "evaluation", "evaluation.samples"),
        ("model.options.width", "", "model.options.width"),
        ("optimizer.schedule.end", "", "optimizer.schedule.end"),
        ("nothing", "", "nothing"),
        ("nothing", "evaluation", "evaluation.nothing"),
    ],
)
def test_a_key_may_be_shortened_to_its_end(name, section, key):
    assert full_key(name, section) == key


def test_an_ambiguous_end_names_the_candidates():
    with pytest.raises(
        RecipeError, match=r"write one of .*attack\.steps.*validation\.steps"
    ):
        override(Recipe(), ["steps=3"])


def test_one_radius_or_several():
    for radii in ("8/255", "[8/255]"):
        changed = override(Recipe(), [f"eps={radii}"], "evaluation")
        assert changed.evaluation.threat.eps == (8 / 255,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("norm=l2", r"normalization layers: write norm\.name=.*threat\.norm=l2"),
        ("norm=group", r"write norm\.name=group"),
        ("model=mlp", r"write model\.name=mlp"),
        ("threat=l2", r"write threat\.norm=l2"),
        ("threat=0.1", r"write threat\.eps=0\.1"),
        ("evaluation.threat=l2", r"write evaluation\.threat\.norm=l2"),
        ("optimizer.schedule=cosine", r"optimizer\.schedule=\{kind: cosine"),
        ("validation=3", r"write one of validation\.every"),
    ],
)
def test_a_value_for_a_section_is_answered_with_what_was_meant(change, words):
    with pytest.raises(RecipeError, match=words):
        override(Recipe(), [change])


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_key_of_an_earlier_version_is_answered_with_its_new_name(old, new):
    assert new in set(keys()) and old not in set(keys())
    with pytest.raises(RecipeError, match=f"^{old}: this key is now {new}$"):
        override(Recipe(), [f"{old}=1"])
    section, _, name = old.rpartition(".")
    text = f"{section}:\n  {name}: 1" if section else f"{name}: 1"
    with pytest.raises(RecipeError, match=f"^{old}: this key is now {new}$"):
        from_yaml(text)


def test_a_recipe_of_an_earlier_version_is_one_sentence(tmp_path):
    old = to_yaml(Recipe()).replace("init_from:", "start:").replace("monitor:", "watch:")
    old = old.replace("  lr:", "  rate:")
    (tmp_path / "recipe.yaml").write_text(old)
    with pytest.raises(RecipeError, match="earlier version of advnorm: train") as error:
        read(tmp_path / "recipe.yaml")
    assert "recipe.yaml" in str(error.value) and "start is now init_from" in str(
        error.value
    )
    assert len(str(error.value).splitlines()) == 2  # the file, and the sentence


def test_replace_changes_what_is_written_and_nothing_else():
    base = Recipe(
        optimizer=OptimizerSpec(
            name="adam", lr=0.01, schedule=Piecewise(at=(3,), factor=0.5)
        ),
        evaluation=EvaluationSpec(samples=10, threat=EvaluationThreatSpec(norm="l2")),
    )
    changed = base.replace(
        epochs=2,
        optimizer=OptimizerSpec(lr=0.02),
        evaluation=EvaluationSpec(threat=EvaluationThreatSpec(eps=(0.5,))),
    )
    assert changed == override(
        base, ["epochs=2", "optimizer.lr=0.02", "evaluation.threat.eps=0.5"]
    )
    again = base.replace(optimizer=OptimizerSpec(schedule=Piecewise(at=(4,))))
    assert again.optimizer.schedule.factor == 0.1  # a schedule is replaced as a whole
    assert base.replace() == base and base.optimizer.lr == 0.01


def test_replace_refuses_settings_that_exclude_each_other():
    base = Recipe(optimizer=OptimizerSpec(momentum=0))
    with pytest.raises(ValueError, match="nesterov looks ahead"):
        base.replace(optimizer=OptimizerSpec(momentum=0, nesterov=True))
    adam = Recipe(optimizer=OptimizerSpec(name="adam"))
    with pytest.raises(ValueError, match="adam has no nesterov"):
        adam.replace(optimizer=OptimizerSpec(nesterov=True))
    with pytest.raises(ValueError, match="greater than 0"):
        adam.replace(threat=ThreatSpec(eps=-1))


def test_replace_takes_every_setting():
    assert set(RecipeChanges.__annotations__) == set(Recipe.model_fields)


def test_commands_of_the_tests_set_keys_of_today():
    """A renamed key would else fail only in the slow tests, which are not run in CI."""
    known = {"." + key for key in keys()}
    wrong = {
        f"{path.name}: {name}"
        for path in Path(__file__).parents[1].rglob("*.py")
        for name in re.findall(r'"--set=([A-Za-z_.]+)=', path.read_text())
        if not any(key.endswith("." + name) for key in known)
    }
    assert not wrong


def test_layers_are_named_and_numbers_are_not():
    layers = override(Recipe(), ["adapt.layers={0: identity, a.1: tanh}"], "evaluation")
    assert layers.evaluation.adapt.layers == {"0": "identity", "a.1": "tanh"}
    with pytest.raises(RecipeError, match=r"1\.1 is a number: write the name of a layer"):
        override(Recipe(), ["adapt.layers={1.10: identity}"], "evaluation")
