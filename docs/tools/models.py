"""Fields of pydantic models, as the tables of reference pages show them."""

import re
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


def type_text(annotation: Any) -> str:
    """Say in words what values a field takes.

    >>> type_text(int | None), type_text(tuple[str, ...]), type_text(Literal["a", "b"])
    ('whole number or null', 'list of text', '`a` or `b`')
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(type_text, inner)))
    if origin is tuple and len(inner) == 2 and inner[1] is not Ellipsis:
        return "pair of " + type_text(inner[0])
    if origin is tuple:
        return "list of " + type_text(inner[0])
    if origin is dict:
        return f"mapping of {type_text(inner[0])} to {type_text(inner[1])}"
    return _SIMPLE.get(annotation) or f"`{annotation.__name__}`"


_SIMPLE: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    NoneType: "null",
    Any: "any value",
}


def plain(annotation: Any) -> Any:
    """Return a type without its ``Annotated`` parts; the recipe's page states limits.

    >>> plain(tuple[Annotated[int, "count"], ...])
    tuple[int, ...]
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain(inner[0])
    parts = tuple(plain(part) if _is_type(part) else part for part in inner)
    if all(new is old for new, old in zip(parts, inner, strict=True)):
        return annotation
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(parts)
    if hasattr(origin, "__class_getitem__"):
        return origin[parts]
    union = parts[0]
    for part in parts[1:]:
        union = union | part
    return union


def _is_type(part: object) -> bool:
    return part is not Ellipsis and not isinstance(part, str | int | list)


def limits(field: FieldInfo) -> str:
    """Return the range of a number, such as ``above 0``; of an option, of the number."""
    ranges = _limits_of(field.metadata)
    for part in (field.annotation, *get_args(field.annotation)):
        if get_origin(part) is Annotated:
            ranges |= _limits_of(_metadata(part))
    return ", ".join(ranges)


def _metadata(annotation: Any) -> list[Any]:
    return [
        item
        for entry in get_args(annotation)[1:]
        for item in (entry.metadata if isinstance(entry, FieldInfo) else [entry])
    ]


def _limits_of(metadata: list[Any]) -> dict[str, None]:
    return {
        text.format(f"{getattr(item, name):.12g}"): None
        for item in metadata
        for name, text in _LIMITS.items()
        if getattr(item, name, None) is not None
    }


def default_text(field: FieldInfo) -> str:
    """Return the default as a recipe writes it.

    >>> default_text(FieldInfo(default=None)), default_text(FieldInfo(default=(0.0, 1.0)))
    ('`null`', '`[0.0, 1.0]`')
    """
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        kind = getattr(value, "kind", None)
        return f"`{kind}`" if kind else "–"
    return f"`{_written(value)}`" if value != "" else '`""`'


def _written(value: object) -> str:
    if isinstance(value, bool | None):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return str(value)


def slug(text: str) -> str:
    """Return the anchor of a heading.

    >>> slug("`data`: the images")
    'data-the-images'
    """
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
