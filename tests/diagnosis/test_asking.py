"""Questions by name: each says where it is from, and takes options of its types."""

import pytest

from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.question_options import options_of, source_of, typed
from advnorm.listing import listing


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_question_names_its_source_in_the_list(name):
    assert source_of(name)
    (line,) = [x for x in listing("questions").splitlines() if x.startswith(f"  {name} ")]
    assert source_of(name) in line and line.count(source_of(name)) == 1


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_default_fits_its_own_type(name):
    defaults = {k: v for k, v in options_of(name).items() if not isinstance(v, tuple)}
    assert typed(name, defaults) == defaults
    assert not {"threat", "progress"} & options_of(name).keys()


@pytest.mark.parametrize(
    "given, words",
    [
        ({"step": 1}, "did you mean 'steps'"),
        ({"steps": "many"}, "hessian.steps=many: input should be a valid integer"),
        ({"steps": 2.5}, "valid integer"),
        ({"steps": 0}, "hessian.steps=0: input should be greater than or equal to 1"),
        ({"steps": True}, "true and false are no numbers"),
        ({"tolerance": -1}, "greater than or equal to 0"),
        ({"tolerance": float("inf")}, "finite number"),
        ({"statistics": "other"}, "'train', 'batch' or 'running'"),
    ],
)
def test_a_misfit_is_one_sentence(given, words):
    with pytest.raises(ValueError, match=words) as caught:
        typed("hessian", given)
    assert "\n" not in str(caught.value)


# Whose meaning ends somewhere; a word, a class and a seed are what they are.
ENDLESS = {"seed", "pair", "classes", "sample", "points"}


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_every_number_has_a_range_and_is_refused_below_it_however_it_is_asked(name):
    for key, default in options_of(name).items():
        several = isinstance(default, tuple)
        one = default[0] if several else default
        if key in ENDLESS or isinstance(one, str | bool):
            continue
        worst = (-1,) if several else -1
        for ask in (typed, lambda name, given: QUESTIONS[name](None, None, None, **given)):
            with pytest.raises(ValueError, match=rf"{name}\.{key}=.*greater than"):
                ask(name, {key: worst})
