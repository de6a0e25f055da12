"""The keys of a recipe: all of them, shortened ones, and those of earlier versions."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, get_args

from pydantic import BaseModel

from advnorm.recipe.recipe import Recipe
from advnorm.recipe.values import RecipeError
from advnorm.text import cut

_NORMS = ("linf", "l2", "l1", "l0")
RENAMED = {
    "optimizer.rate": "optimizer.lr",
    "optimizer.only": "optimizer.parameters",
    "optimizer.clip": "optimizer.clip_norm",
    "optimizer.scalar_factor": "optimizer.scalar_lr_factor",
    "data.smoothing": "data.label_smoothing",
    "norm.freeze_last": "norm.freeze_epochs",
    "start": "init_from",
    "watch": "monitor",
    "validation.prefer": "validation.select_by",
    "evaluation.attacks": "evaluation.conditions",
    "evaluation.norm": "evaluation.threat.norm",
    "evaluation.eps": "evaluation.threat.eps",
    "evaluation.certify": "evaluation.certificate",
    "perturbation.attacked": "perturbation.attack_samples",
}
"""Keys of earlier versions, and what they are called now."""


def full_key(name: str, section: str = "") -> str:
    """Return the full name of a key, which may be shortened to its end.

    ``section`` is that which a command is about: its keys come first.

    >>> full_key("lr"), full_key("threat.norm", "evaluation")
    ('optimizer.lr', 'evaluation.threat.norm')
    """
    for prefix in (f"{section}.", "") if section else ("",):
        if _exists(prefix + name):
            return prefix + name
        ends = [k for k in keys() if k.startswith(prefix) and k.endswith(f".{name}")]
        if len(ends) > 1:
            raise RecipeError(
                f"{name}: there are several such keys: write one of {', '.join(ends)}"
            )
        if ends:
            return ends[0]
    renamed = [old for old in RENAMED if f".{old}".endswith(f".{name}")]
    return renamed[0] if renamed else f"{section}.{name}" if section else name


def renamed_line(old: str) -> str:
    """Say what a key of an earlier version is called now."""
    return f"{old}: this key is now {RENAMED[old]}"


def original_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings under the names that their keys had first.

    Fingerprints are made of these: a renamed key does not turn a run into another one.

    >>> original_keys({"epochs": 3, "optimizer": {"lr": 0.1}})
    {'epochs': 3, 'optimizer': {'rate': 0.1}}
    """
    renamed = deepcopy(dict(values))
    for old, new in RENAMED.items():
        *path, name = new.split(".")
        section: Any = renamed
        for part in path:
            section = section.get(part, {}) if isinstance(section, dict) else {}
        if isinstance(section, dict) and name in section:
            value = section.pop(name)
            *path, name = old.split(".")
            section = renamed
            for part in path:
                section = section[part]
            section[name] = value
    return renamed


def keys() -> Iterator[str]:
    """Yield every key of a recipe, sections included, schedules as one."""
    return _keys(Recipe, "")


def section_fields(path: Sequence[str]) -> list[str]:
    """Return the keys of the section that ``path`` leads to."""
    spec: type[BaseModel] = Recipe
    for part in path:
        if part in spec.model_fields:
            spec = _spec_of(spec.model_fields[part].annotation, path)
    return list(spec.model_fields)


def section_advice(key: str, value: object) -> str:
    """Say what to write where a section was set to a single value."""
    fields = section_fields(key.split("."))
    what = f"{key}: this is a section of settings"
    if key == "norm" and value in _NORMS:
        return (
            f"{what}, the normalization layers: write norm.name=batch or norm.name=group; "
            f"the norm of the adversary's ball is threat.norm={value}"
        )
    if "kind" in fields:
        return f"{what}: write {key}={{kind: {cut(str(value), 80)}, ...}}"
    if "name" in fields:
        return f"{what}: write {key}.name={cut(str(value), 80)}"
    if key.endswith("threat"):
        own = "norm" if value in _NORMS else "eps"
        return f"{what}: write {key}.{own}={cut(str(value), 80)}"
    return f"{what}: write one of {', '.join(f'{key}.{field}' for field in fields)}"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by their full keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _keys(spec: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in spec.model_fields.items():
        yield f"{prefix}{name}"
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _keys(annotation, f"{prefix}{name}.")


def _exists(key: str) -> bool:
    """Tell whether a key is one of a recipe, or leads into its options or schedules."""
    known = set(keys())
    first, *others = key.split(".")
    while others and f"{first}.{others[0]}" in known:
        first = f"{first}.{others.pop(0)}"
    return first in known and (not others or not _is_section(first))


def _is_section(key: str) -> bool:
    return any(other.startswith(f"{key}.") for other in keys())


def _spec_of(annotation: Any, path: Sequence[str]) -> type[BaseModel]:
    """Return the section a field holds; of a schedule, the kind that was named."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    kinds: list[type[BaseModel]] = [
        kind
        for kind in get_args(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    ]
    named = [kind for kind in kinds if kind.model_fields["kind"].default == path[-1]]
    return (named or kinds or [Recipe])[0]
