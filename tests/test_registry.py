"""Options by name are checked in one place: names, types, choices, ranges, none."""

from functools import partial
from typing import Annotated, Literal

import pytest
from pydantic import Field

from advnorm.gradients import GRADIENTS
from advnorm.models import MODELS
from advnorm.norms import NORMS
from advnorm.objectives import OBJECTIVES
from advnorm.registry import bind, options, validate


def method(
    model,
    *,
    steps: Annotated[int, Field(ge=1)] = 10,
    share: float = 0.5,
    momentum: float | None = 0.1,
    mode: Literal["train", "batch"] = "train",
    affine: bool = True,
    counts: tuple[int, ...] = (1, 2),
    threat: object = None,
):
    """Return what it was given."""
    return model, steps, share, momentum, mode, affine, counts


def checked(**values):
    return validate(method, values, owner="method 'm'", without=("threat",))


def test_options_are_the_parameters_with_a_default():
    assert options(method)["steps"] == 10 and "model" not in options(method)
    assert "threat" not in options(method, without=("threat",))


def test_values_come_back_in_their_types():
    values = checked(steps=3, share=1, momentum=None, mode="batch", counts=[4, 5])
    assert values == {
        "steps": 3,
        "share": 1.0,
        "momentum": None,
        "mode": "batch",
        "counts": (4, 5),
    }
    assert type(values["share"]) is float and checked(affine=False) == {"affine": False}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"step": 1}, "no option of method 'm' called 'step': did you mean 'steps'"),
        ({"threat": 1}, "no option of method 'm' called 'threat'"),
        ({"model": 1}, "no option of method 'm' called 'model'"),
        ({"steps": 0}, "'steps' of method 'm': 0 should be greater than or equal to 1"),
        ({"steps": 2.5}, "'steps' of method 'm': 2.5 should be a valid integer"),
        ({"steps": 2.0}, "2.0 should be a valid integer"),
        ({"steps": True}, "True should be a valid integer"),
        ({"steps": "3"}, "'3' should be a valid integer"),
        ({"steps": None}, "None should be a valid integer"),
        ({"share": True}, "True should be a valid number"),
        ({"share": "half"}, "'half' should be a valid number"),
        ({"momentum": "x"}, "'x' should be a valid number"),
        ({"mode": "running"}, "'running' should be 'train' or 'batch'"),
        ({"affine": 1}, "'affine' of method 'm': 1 should be a valid boolean"),
        ({"counts": [1, "2"]}, r"\[1, '2'\] should be a valid integer"),
        ({"counts": 1}, "1 should be a valid tuple"),
    ],
)
def test_a_wrong_option_is_one_sentence_with_its_name_and_its_owner(values, words):
    with pytest.raises(ValueError, match=words) as caught:
        checked(**values)
    assert "\n" not in str(caught.value) and "method 'm'" in str(caught.value)


def test_what_has_no_options_says_so():
    with pytest.raises(ValueError, match="norm 'none' has no options: remove 'eps'"):
        validate(NORMS["none"], {"eps": 1}, owner="norm 'none'")


def test_bound_options_reach_the_function_and_its_partials():
    assert bind(method, {"steps": 2}, owner="m")("net")[:2] == ("net", 2)
    member = partial(method, share=0.25)
    assert bind(member, {"steps": 2}, owner="m")("net")[1:3] == (2, 0.25)
    with pytest.raises(ValueError, match="valid integer"):
        bind(member, {"steps": "x"}, owner="m")


@pytest.mark.parametrize("registry", [NORMS, MODELS, OBJECTIVES, GRADIENTS])
def test_every_default_is_valid_by_its_own_annotation(registry):
    for name in registry:
        common = {"standardize": None, "norm": None}
        defaults = options(registry[name], without=common)
        assert validate(registry[name], defaults, owner=name) == defaults
