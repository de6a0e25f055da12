"""Questions by name: each says where it is from, and takes options of its types."""

import pytest

from advnorm.diagnose import QUESTIONS
from advnorm.diagnose.asking import options_of, source_of, typed
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
        ({"statistics": "other"}, "'train', 'batch' or 'running'"),
    ],
)
def test_a_misfit_is_one_sentence(given, words):
    with pytest.raises(ValueError, match=words) as caught:
        typed("hessian", given)
    assert "\n" not in str(caught.value)
