"""Questions by name: each names its source and validates its options."""

import pytest

from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.registry import options_of, source_of, validate_options
from advnorm.listing import listing


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_question_names_its_source_in_the_list(name):
    assert source_of(name)
    (line,) = [x for x in listing("questions").splitlines() if x.startswith(f"  {name} ")]
    assert source_of(name) in line and line.count(source_of(name)) == 1


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_default_fits_its_own_type(name):
    defaults = {k: v for k, v in options_of(name).items() if not isinstance(v, tuple)}
    assert validate_options(name, defaults) == defaults
    assert (
        not {"threat", "progress", "training_means", "training_samples"}
        & options_of(name).keys()
    )


@pytest.mark.parametrize(
    "options, words",
    [
        ({"step": 1}, "did you mean 'steps'"),
        (
            {"steps": "many"},
            "option 'steps' of question 'hessian': 'many' should be a valid integer",
        ),
        ({"steps": 2.5}, "valid integer"),
        (
            {"steps": 0},
            "'steps' of question 'hessian': 0 should be greater than or equal to 1",
        ),
        ({"steps": True}, "True should be a valid integer"),
        ({"tolerance": -1}, "greater than or equal to 0"),
        ({"tolerance": float("inf")}, "finite number"),
        ({"statistics": "other"}, "'train', 'batch' or 'running'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(options, words):
    with pytest.raises(ValueError, match=words) as caught:
        validate_options("hessian", options)
    assert "\n" not in str(caught.value)


# Numbers without a range: a class, an index, a seed, or checked by the question itself.
UNBOUNDED = {"seed", "pair", "classes", "sample", "points"}


def _ask_directly(name, options):
    return QUESTIONS[name](None, None, None, **options)


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_number_has_a_range_and_is_refused_below_it(name):
    for key, default in options_of(name).items():
        is_tuple = isinstance(default, tuple)
        number = default[0] if is_tuple else default
        if key in UNBOUNDED or isinstance(number, str | bool):
            continue
        worst = (-1,) if is_tuple else -1
        for ask in (validate_options, _ask_directly):
            with pytest.raises(
                ValueError, match=rf"'{key}' of question '{name}': .*greater than"
            ):
                ask(name, {key: worst})
