"""Default settings, and whether those of a record are today's.

Recipes are compared without their defaults, so that old runs stay valid when a setting is
added. The defaults of recipes, schedules and questions are therefore kept with the numbers
of a record.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, get_args

from advnorm.diagnosis import QUESTIONS, REVISIONS
from advnorm.diagnosis.registry import CONTEXT
from advnorm.recipe import Recipe, ScheduleSpec
from advnorm.registry import options

_IDLE = {("name",), ("seed",), ("checkpoint_seconds",), ("data", "workers")}
"""Settings that decide no number, or are always written."""
_SCHEDULES = get_args(get_args(ScheduleSpec)[0])


def default_settings() -> dict[str, Any]:
    """Return every setting of a recipe, a schedule and a question, at its default."""
    settings: dict[str, Any] = Recipe().model_dump(mode="json")
    settings["schedules"] = {
        schedule.__name__: {
            name: field.default
            for name, field in schedule.model_fields.items()
            if not field.is_required()
        }
        for schedule in _SCHEDULES
    }
    settings["questions"] = {
        name: {**_options(name), "revision": REVISIONS.get(name, 1)} for name in QUESTIONS
    }
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def _options(question: str) -> dict[str, Any]:
    """Return the options of a question that decide numbers."""
    values = options(QUESTIONS[question])
    return {name: value for name, value in values.items() if name not in CONTEXT}


def same_defaults(
    before: Mapping[str, Any], now: Mapping[str, Any], questions: Collection[str]
) -> bool:
    """Tell whether numbers computed with earlier defaults would be the same now.

    New settings do not matter, nor do the defaults of questions other than ``questions``.

    >>> now = {"epochs": 30, "name": "b", "new": 1}
    >>> same_defaults({"epochs": 30, "name": "a"}, now, ())
    True
    >>> then, here = ({"questions": {"dead": {"count": count}}} for count in (1, 2))
    >>> same_defaults(then, here, ["dead"]), same_defaults(then, here, ["pca"])
    (False, True)
    """
    if not before:
        return False
    recipe_before, recipe_now = (
        {key: value for key, value in settings.items() if key != "questions"}
        for settings in (before, now)
    )
    options_before, options_now = before.get("questions", {}), now.get("questions", {})
    return _same(recipe_before, recipe_now) and all(
        _same(options_before[name], options_now.get(name))
        for name in questions
        if name in options_before
    )


def _same(before: object, now: object, path: tuple[str, ...] = ()) -> bool:
    if not isinstance(before, dict) or not before:
        return before == now
    return isinstance(now, dict) and all(
        (*path, key) in _IDLE or (key in now and _same(value, now[key], (*path, key)))
        for key, value in before.items()
    )
