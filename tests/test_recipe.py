"""Recipes: every mistake at once, each with its remedy; YAML round-trips."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from advnorm import recipe as recipes
from advnorm.recipe import Recipe, RecipeError, from_yaml, override, parse, to_yaml


def test_a_fraction_is_accepted_for_any_float():
    recipe = parse({"threat": {"eps": "8/255"}, "optimizer": {"weight_decay": "5e-4"}})
    assert recipe.threat.eps == 8 / 255 and recipe.optimizer.weight_decay == 5e-4
    assert override(recipe, ["evaluation.eps=[4/255, 8/255]"]).evaluation.eps[0] == 4 / 255


def test_unknown_keys_name_the_closest_and_all_errors_come_at_once():
    with pytest.raises(RecipeError) as error:
        parse(
            {"epoch": 3, "threat": {"esp": 0.1}, "batch_size": 0, "attack": {"steps": "x"}}
        )
    lines = str(error.value).splitlines()
    assert len(lines) == 4
    assert "did you mean 'epochs'?" in str(error.value)
    assert "threat.esp" in str(error.value) and "did you mean 'eps'?" in str(error.value)
    assert any(line.startswith("batch_size:") for line in lines)


def test_an_unknown_key_inside_a_schedule_names_that_schedules_keys():
    with pytest.raises(RecipeError, match="did you mean 'factor'"):
        parse({"optimizer": {"schedule": {"kind": "piecewise", "at": [1], "facto": 0.1}}})


def test_an_unknown_schedule_says_which_exist():
    with pytest.raises(RecipeError, match="piecewise"):
        parse({"optimizer": {"schedule": {"kind": "stepwise"}}})


@pytest.mark.parametrize(
    "change, words",
    [
        ("epochs", "key=value"),
        ("=3", "key=value"),
        ("epochs=three", "epochs"),
        ("threat.eps=0", "greater than 0"),
        ("threat.eps=8/0", "is not a number"),
        ("threat.eps=8/2/255", "is not a number"),
        ("attack.stepsize=1", "did you mean 'step_size'"),
        ("nothing.at.all=1", "nothing"),
        ("attack.clean_start=1.5", "less than or equal to 1"),
    ],
)
def test_a_wrong_override_is_refused_with_a_reason(change, words):
    with pytest.raises(RecipeError, match=words):
        override(Recipe(), [change])


def test_an_override_copies_and_reaches_nested_settings():
    base = Recipe()
    changed = override(base, ["attack.steps=2", "model.options.width=16"])
    assert (base.attack.steps, changed.attack.steps) == (10, 2)
    assert changed.model.options == {"width": 16}


def test_a_recipe_is_frozen():
    with pytest.raises(ValidationError):
        Recipe().epochs = 3


numbers = st.floats(1e-6, 1e3, allow_nan=False)


@given(
    numbers,
    st.integers(1, 500),
    st.lists(numbers, max_size=3),
    st.dictionaries(st.sampled_from(["width", "depth"]), st.integers(1, 9)),
    st.sampled_from(
        [
            {"kind": "constant"},
            {"kind": "piecewise", "at": [3, 5.5]},
            {"kind": "ramp", "last": 7},
            {"kind": "cyclic", "peak": 2, "end": 9},
            {"kind": "cosine", "end": 9},
        ]
    ),
)
@settings(deadline=None, max_examples=40)
def test_yaml_round_trips_exactly(eps, epochs, radii, options, schedule):
    recipe = parse(
        {
            "epochs": epochs,
            "threat": {"eps": eps, "bounds": [float("-inf"), 2.5], "schedule": schedule},
            "evaluation": {"eps": radii},
            "model": {"options": options},
        }
    )
    assert from_yaml(to_yaml(recipe)) == recipe


def test_differences_name_keys_and_both_values():
    changed = override(Recipe(), ["attack.steps=2", "model.options.width=8"])
    assert recipes.differences(Recipe(), changed) == [
        "attack.steps: 10 -> 2",
        "model.options.width: None -> 8",
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "", "3"])
def test_text_that_is_no_recipe_is_refused(text):
    with pytest.raises(RecipeError):
        from_yaml(text)


def test_a_yaml_tag_cannot_make_objects():
    with pytest.raises(RecipeError):
        from_yaml("name: !!python/object/apply:os.getcwd []")
