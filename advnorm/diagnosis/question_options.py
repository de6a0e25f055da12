"""A question by name: where it is from, which options it has, and whether they fit."""

import re
import sys
from collections.abc import Mapping
from inspect import getdoc
from typing import Any

from advnorm.diagnosis.option_ranges import GIVEN, fitted
from advnorm.diagnosis.registry import QUESTIONS
from advnorm.registry import options, unknown

_SOURCE = re.compile(r"\(([^()]*(?:\d{4}|et al\.)[^()]*)\)")


def options_of(name: str) -> dict[str, object]:
    """Return the options of a question with their defaults.

    >>> options_of("hessian")["steps"]
    30
    """
    found = options(QUESTIONS[name])
    return {key: value for key, value in found.items() if key not in GIVEN}


def source_of(name: str) -> str:
    """Return the paper that asks a question: what its text has in parentheses.

    >>> source_of("hessian")
    'sridhar2021, Fig. 1b'
    """
    question = QUESTIONS[name]
    texts = (getdoc(question), sys.modules[question.__module__].__doc__)
    found = filter(None, (_SOURCE.search(text or "") for text in texts))
    return next((" ".join(match[1].split()) for match in found), "")


def typed(name: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return options in the types that the question wants; a misfit is one sentence.

    >>> typed("hessian", {"steps": 5, "tolerance": 0})
    {'steps': 5, 'tolerance': 0.0}
    """
    known = options_of(name)
    for key in given:
        if key not in known:
            raise unknown(f"option of question {name!r} called", key, list(known))
    return fitted(name, QUESTIONS[name], given)
