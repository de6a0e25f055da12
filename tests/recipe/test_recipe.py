"""Recipes: every mistake at once, each with its remedy; YAML round-trips."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from advnorm import recipe as recipes
from advnorm.recipe import (
    Constant,
    Recipe,
    RecipeError,
    ScheduleSpec,
    from_yaml,
    largest,
    override,
    parse,
    to_yaml,
)


def test_a_fraction_is_accepted_for_any_float():
    recipe = parse({"threat": {"eps": "8/255"}, "optimizer": {"weight_decay": "5e-4"}})
    assert recipe.threat.eps == 8 / 255 and recipe.optimizer.weight_decay == 5e-4
    assert (
        override(recipe, ["evaluation.threat.eps=[4/255, 8/255]"]).evaluation.threat.eps[0]
        == 4 / 255
    )


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
            "evaluation": {"threat": {"eps": radii}},
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


@pytest.mark.parametrize(
    "change",
    [
        "epochs=true",
        "epochs=yes",
        "seed=false",
        "threat.eps=true",
        "threat.bounds=[false, true]",
        "threat.schedule={kind: ramp, last: true}",
        "attack.step_size=true",
        "attack.statistics={true: batch}",
        "optimizer.momentum=false",
        "gradient.eps=false",
        "data.classes=[true, 3]",
        "norm.where=[false]",
        "norm.freeze_epochs=true",
        "data.workers=true",
        "evaluation.examples=true",
        "evaluation.threat.eps=[true]",
        "perturbation.radii=[false]",
    ],
)
def test_true_and_false_are_no_numbers(change):
    with pytest.raises(RecipeError, match=r"(true|false) is not a number: write one"):
        override(Recipe(), [change])
    key, _, value = change.partition("=")
    for part in reversed(key.split(".")):
        value = f"{{{part}: {value}}}"
    with pytest.raises(RecipeError, match="is not a number"):
        from_yaml(value)


def test_true_and_false_stay_what_they_are_where_they_are_meant():
    recipe = override(Recipe(), ["compile=true", "norm.options={affine: false}"])
    assert recipe.compile is True and recipe.norm.options == {"affine": False}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epochs: 3\nname: a\nepochs: 4", "key 'epochs' of line 3 is already in line 1"),
        (
            "epochs: 3\nthreat:\n  eps: 0.1\n  norm: l2\n  eps: 0.2\n",
            "key 'eps' of line 5 is already in line 3",
        ),
        ("attack: {statistics: {1: batch,\n 1.0: running}}", "'1.0' of line 2"),
        ("model:\n  options:\n    'width': 3\n    width: 4", "'width' of line 4"),
        ("evaluation:\n  eps: [0.1]\n  'eps': [0.2]", "'eps' of line 3"),
    ],
)
def test_a_key_that_stands_twice_is_named_with_its_lines(text, words):
    with pytest.raises(RecipeError, match=words):
        from_yaml(text)


def test_a_key_that_stands_twice_in_an_override_is_refused():
    with pytest.raises(RecipeError, match=r"--set optimizer=.*the key 'lr'"):
        override(Recipe(), ["optimizer={lr: 0.1, momentum: 0, lr: 0.2}"])


def test_the_same_key_may_stand_in_two_places_and_beside_what_it_takes_from_another():
    """Two parts each have an ``eps``; a key beside ``<<`` goes before what that brings."""
    text = "threat: &t {eps: 0.2, norm: l2}\nvalidation: {eps: 0.1}\n"
    recipe = from_yaml(text)
    assert (recipe.threat.eps, recipe.validation.eps) == (0.2, 0.1)
    base = "norm: {options: &o {affine: true, sync: true}}\n"
    recipe = from_yaml(base + "model: {options: {<<: *o, sync: false}}")
    assert recipe.model.options == {"affine": True, "sync": False}


def test_yaml_that_holds_itself_is_refused_and_not_walked_for_ever():
    with pytest.raises(RecipeError, match="line 1 has a value that contains itself"):
        from_yaml("model: &m {options: *m}")


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("{kind: ramp, first: 3, last: 2}", "first=3 is after last=2: exchange"),
        ("{kind: cyclic, peak: 9, end: 2}", "peak=9 is after end=2"),
        ("{kind: cosine, warmup: 9, end: 2}", "warmup=9 is longer than until end=2"),
    ],
)
@pytest.mark.parametrize("key", ["optimizer.schedule", "threat.schedule"])
def test_a_schedule_whose_times_are_out_of_order_is_refused(key, schedule, words):
    with pytest.raises(RecipeError, match=rf"^{key}\.\w+: {words}") as error:
        override(Recipe(), [f"{key}={schedule}"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "schedule",
    ["{kind: ramp, first: 2, last: 2}", "{kind: cyclic, peak: 2, end: 2}"],
)
def test_a_schedule_may_jump(schedule):
    override(Recipe(), [f"optimizer.schedule={schedule}"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["name=adam"], "adam has no nesterov: write nesterov=false"),
        (["name=rmsprop"], "rmsprop has no nesterov"),
        (["momentum=0"], "nesterov looks ahead along the momentum, which is 0: write"),
    ],
)
def test_nesterov_is_refused_where_nothing_would_come_of_it(changes, words):
    changes = [f"optimizer.{change}" for change in changes]
    override(Recipe(), changes)
    with pytest.raises(RecipeError, match=f"^optimizer: {words}") as error:
        override(Recipe(), [*changes, "optimizer.nesterov=true"])
    assert "given" not in str(error.value), "all of the optimizer, when two keys matter"


times = st.integers(4, 24).map(lambda quarters: quarters / 4)
factors = st.floats(0, 2, allow_nan=False)
schedules = st.one_of(
    st.just({"kind": "constant"}),
    st.builds(
        lambda first, more, start, stop: {
            "kind": "ramp",
            "first": first,
            "last": first + more,
            "start": start,
            "stop": stop,
        },
        times,
        times,
        factors,
        factors,
    ),
    st.builds(
        lambda at, factor, warmup, start: {
            "kind": "piecewise",
            "at": at,
            "factor": factor + 0.1,
            "warmup": warmup,
            "start": start,
        },
        st.lists(times, max_size=2),
        factors,
        times,
        factors,
    ),
    st.builds(lambda a, b: {"kind": "cyclic", "peak": a, "end": a + b}, times, times),
    st.builds(lambda a, b: {"kind": "cosine", "warmup": a, "end": a + b}, times, times),
)


@given(schedules, st.integers(1, 5))
@settings(deadline=None, max_examples=80)
def test_the_largest_factor_is_that_of_a_search_by_brute_force(schedule, epochs):
    spec = TypeAdapter(ScheduleSpec).validate_python(schedule)
    value, largest_factor = spec.build(), largest(spec, epochs)
    searched = max(value(k / 1600) for k in range(1600 * epochs))
    assert searched <= largest_factor <= searched + 0.01


def test_the_largest_factor_of_each_kind_by_hand():
    def top(schedule, epochs):
        return largest(TypeAdapter(ScheduleSpec).validate_python(schedule), epochs)

    assert largest(Constant(), 3) == 1
    assert top({"kind": "ramp", "last": 2, "stop": 2}, 3) == 2
    assert top({"kind": "ramp", "last": 2, "start": 3, "stop": 0}, 3) == 3
    assert top({"kind": "ramp", "first": 5, "last": 6, "start": 0.5, "stop": 2}, 3) == 0.5
    rises = {"kind": "piecewise", "at": [1, 3], "factor": 4}
    assert (top(rises, 1), top(rises, 3), top(rises, 4)) == (1, 4, 16)
    drops = {"kind": "piecewise", "at": [2], "factor": 0.5, "warmup": 3, "start": 0.4}
    assert top(drops, 3) == pytest.approx(0.8)  # just before the fall, two thirds up
    assert top({"kind": "cyclic", "peak": 1.2345, "end": 2}, 3) == 1
