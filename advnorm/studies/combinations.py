"""The combinations of settings that a study compares."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from advnorm.data import expand_name
from advnorm.evaluation.condition_names import (
    ALL_CORRUPTIONS,
    CertificateName,
    NaturalName,
    parse_condition,
)
from advnorm.objectives import OBJECTIVES, TWO_DOMAINS
from advnorm.recipe import (
    EvaluationSpec,
    EvaluationThreatSpec,
    Recipe,
    RecipeError,
    full_key,
    override,
)
from advnorm.registry import options
from advnorm.runs.plan import Plan, plan
from advnorm.studies.grid import attempt
from advnorm.studies.trained_runs import training_settings
from advnorm.training.components import evaluation_threats
from advnorm.training.recipe_checks import check_recipe

_WITH_BRANCHES = ("mixture", "affine")
_OF_TWO_DOMAINS = (*_WITH_BRANCHES, "borrowed")
_SENTENCE = re.compile(r"^(Value|Recipe|FileNotFound|NotImplemented)Error: ")
"""The types of errors that are written for the user, who needs no type."""
Over = Mapping[str, Sequence[str]]
"""Values by key: ``{"norm.name": ["batch", "group"]}``."""


class Combinations(NamedTuple):
    """What is compared, and what is left out."""

    recipes: dict[str, Recipe]
    settings: dict[str, dict[str, str]]
    plans: dict[str, Plan]
    """What a run of each costs."""
    skipped: dict[str, str]
    """Why a combination makes no sense."""


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read ``KEY=VALUE,VALUE``, as ``--over`` takes it; commas in brackets do not split.

    >>> parse_over(["norm.name=batch,none", "lr=0.1,0.2"])
    {'norm.name': ['batch', 'none'], 'optimizer.lr': ['0.1', '0.2']}
    >>> parse_over(["norm.where=[0, 1],all"])
    {'norm.where': ['[0, 1]', 'all']}
    """
    over: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise ValueError(
                f"--over takes KEY=VALUE,VALUE, such as norm.name=batch,group, not {text!r}"
            )
        split = [value.strip() for value in re.split(r",(?![^\[{]*[\]}])", values)]
        if not all(split):
            raise ValueError(f"--over {text}: a value between two commas is missing")
        name = full_key(key.strip(), "")
        if name in over:
            raise ValueError(f"--over {name} is there twice: name all its values at once")
        over[name] = list(dict.fromkeys(split))
    return over


def texts_of(over: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
    """Return values of Python as ``--over`` would have them; keys may be shortened.

    >>> texts_of({"lr": [0.1, 0.2], "norm.where": [[0, 1], "all"]})
    {'optimizer.lr': ['0.1', '0.2'], 'norm.where': ['[0, 1]', 'all']}
    """
    texts = {}
    for key, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"{key}: give a list of values to compare, not {values!r}")
        texts[full_key(key, "")] = list(dict.fromkeys(map(_text, values)))
    return texts


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def combine(recipe: Recipe, over: Over) -> Combinations:
    """Return the recipe of each combination that makes sense, by its label."""
    _check_question(recipe, over)
    recipes: dict[str, Recipe] = {}
    settings: dict[str, dict[str, str]] = {}
    plans: dict[str, Plan] = {}
    skipped: dict[str, str] = {}
    same: dict[str, str] = {}
    for values in product(*over.values()):
        chosen = dict(zip(over, values, strict=True))
        label = ", ".join(chosen.values())
        try:
            changed = _changed(recipe, chosen)
        except ValueError as error:
            skipped[label] = str(error).splitlines()[0]
            continue
        first = same.setdefault(training_settings(changed), label)
        if first != label:
            skipped[label] = f"the same training as {first}"
            continue
        _, counts, failure = attempt(plan, 0, changed)
        if counts is None:
            skipped[label] = " ".join(_SENTENCE.sub("", failure).split())
            continue
        recipes[label], settings[label], plans[label] = changed, chosen, counts
    if len(recipes) < 2:
        reasons = "; ".join(_by_reason(skipped))
        raise ValueError(
            f"a study compares at least two combinations, and {len(recipes)} "
            f"make{'s' * (len(recipes) == 1)} sense{f' ({reasons})' if reasons else ''}"
        )
    return Combinations(recipes, settings, plans, skipped)


def _by_reason(skipped: Mapping[str, str]) -> list[str]:
    """Return each reason once, after the combinations that have it.

    >>> _by_reason({"batch": "no labels", "lr, group": "no", "none": "no labels"})
    ['batch; none: no labels', 'lr, group: no']
    """
    labels: dict[str, list[str]] = {}
    for label, reason in skipped.items():
        labels.setdefault(reason, []).append(label)
    return [f"{'; '.join(alike)}: {reason}" for reason, alike in labels.items()]


def _check_question(recipe: Recipe, over: Over) -> None:
    if not over:
        raise ValueError("name what to compare: --over norm.name=batch,group,none")
    if "seed" in over:
        raise ValueError("seeds are not compared: say how many with --seeds")
    if not any(map(_has_adversary, recipe.evaluation.conditions)):
        raise ValueError(
            "a study compares robust accuracy, and the evaluation has no attack: --set "
            "evaluation.conditions='[clean, pgd-50]'"
        )
    name = recipe.evaluation.data
    if name is not None and len(expand_name(name)) > 1:
        raise ValueError(
            f"a study tests one data set, and evaluation.data={name} is several: name one, "
            f"such as {expand_name(name)[0]}"
        )


def _has_adversary(condition: str) -> bool:
    if condition == ALL_CORRUPTIONS:
        return False
    return not isinstance(parse_condition(condition), NaturalName | CertificateName)


def _changed(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """Change a recipe.

    The options of its norm are not those of another norm; an objective gets those settings
    of the recipe's objective that it has.
    """
    changes = [f"{key}={value}" for key, value in settings.items()]
    if settings.get("norm.name", recipe.norm.name) != recipe.norm.name:
        changes.insert(0, "norm.options={}")
    name = settings.get("objective.name", "")
    if name in OBJECTIVES:
        known = options(OBJECTIVES[name])
        foreign = [key for key in recipe.objective.settings() if key not in known]
        changes[:0] = [f"objective.{key}=null" for key in foreign]
    changed = _tested_alike(override(recipe, changes), recipe)
    check_recipe(changed)
    norm, objective = changed.norm.name, changed.objective.name
    if norm in _OF_TWO_DOMAINS and objective not in TWO_DOMAINS:
        raise RecipeError(
            f"objective {objective!r} trains on one domain, where norm {norm!r} is the "
            "same as batch norm"
        )
    return changed


def _tested_alike(changed: Recipe, recipe: Recipe) -> Recipe:
    """Test at the radii of the study's recipe; only norms with branches choose one."""
    test: dict[str, object] = {}
    if changed.threat != recipe.threat:
        threats = evaluation_threats(recipe)
        test["threat"] = EvaluationThreatSpec(
            norm=threats[0].name, eps=tuple(threat.eps for threat in threats)
        )
    if changed.norm.name not in _WITH_BRANCHES:
        test["branch"] = EvaluationSpec().branch
    return changed.replace(evaluation=changed.evaluation.model_copy(update=test))
