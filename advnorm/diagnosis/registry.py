"""The questions by name, where each is from, and the types and ranges of their options."""

import re
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import getdoc, signature
from typing import Annotated, Any, ParamSpec

from pydantic import Field

from advnorm.records import Diagnosis
from advnorm.registry import Registry, options, validate

P = ParamSpec("P")

Count = Annotated[int, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ProbabilityMargin = Annotated[float, Field(ge=0, lt=1)]
"""The difference of two probabilities."""

QUESTIONS: Registry[Callable[..., Diagnosis]] = Registry("question")
"""Each answers from a model, images and labels."""
REVISIONS = {
    "branches": 2,
    "depth_pca": 2,
    "distances": 2,
    "pca": 2,
    "tilt": 2,
    "weights": 2,
}
"""How often the measurement of a question was redefined; records keep the revision."""

CONTEXT = ("threat", "progress", "training_means", "training_samples")
"""What a question is asked with, beside its options. ``training_means`` are the means of
the classes over the training set, shape ``(classes, ...)``, or ``None`` without one;
``training_samples`` returns so many images of it with their labels."""
_SOURCE = re.compile(r"\(([^()]*(?:\d{4}|et al\.)[^()]*)\)")


def question(name: str) -> Callable[[Callable[P, Diagnosis]], Callable[P, Diagnosis]]:
    """Register a question under a name.

    Its options are validated in every call. A question whose ``threat`` has no default is
    refused without one.
    """

    def register(answer: Callable[P, Diagnosis]) -> Callable[P, Diagnosis]:
        threat = signature(answer).parameters["threat"]

        @wraps(answer)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Diagnosis:
            chosen = {key: kwargs[key] for key in kwargs if key not in CONTEXT}
            _validate(name, answer, chosen)
            if threat.default is threat.empty and kwargs.get("threat") is None:
                raise ValueError(f"{name} needs a threat, such as threat=Linf(8/255)")
            return answer(*args, **kwargs)

        return QUESTIONS.register(name)(checked)

    return register


def options_of(name: str) -> dict[str, object]:
    """Return the options of a question with their defaults.

    >>> options_of("hessian")["steps"]
    30
    """
    return options(QUESTIONS[name], without=CONTEXT)


def source_of(name: str) -> str:
    """Return the paper that asks a question: the citation in parentheses in its docstring.

    >>> source_of("hessian")
    'sridhar2021, Fig. 1b'
    """
    question = QUESTIONS[name]
    texts = (getdoc(question), sys.modules[question.__module__].__doc__)
    citations = filter(None, (_SOURCE.search(text or "") for text in texts))
    return next((" ".join(match[1].split()) for match in citations), "")


def validate_options(name: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return options of a question in its types; a wrong one is refused in one sentence.

    >>> validate_options("hessian", {"steps": 5, "tolerance": 0})
    {'steps': 5, 'tolerance': 0.0}
    """
    return _validate(name, QUESTIONS[name], values)


def _validate(
    name: str, answer: Callable[..., Diagnosis], values: Mapping[str, object]
) -> dict[str, Any]:
    return validate(answer, values, owner=f"question {name!r}", without=CONTEXT)
