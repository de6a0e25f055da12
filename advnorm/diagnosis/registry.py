"""The questions by name."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from advnorm.diagnosis.option_ranges import GIVEN, fitted
from advnorm.records import Diagnosis
from advnorm.registry import Registry

P = ParamSpec("P")

QUESTIONS: Registry[Callable[..., Diagnosis]] = Registry("question")
REVISIONS = {"branches": 2, "depth_pca": 2, "distances": 2, "pca": 2}
"""How often what a question measures was defined anew: an answer is of its revision."""


def question(name: str) -> Callable[[Callable[P, Diagnosis]], Callable[P, Diagnosis]]:
    """Enter a question under a name; an option out of its range is refused at once."""

    def enter(ask: Callable[P, Diagnosis]) -> Callable[P, Diagnosis]:
        @wraps(ask)
        def asked(*given: P.args, **named: P.kwargs) -> Diagnosis:
            fitted(name, ask, {key: named[key] for key in named if key not in GIVEN})
            return ask(*given, **named)

        return QUESTIONS.register(name)(asked)

    return enter
