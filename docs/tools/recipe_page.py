"""The page of a recipe's keys, from the models that read recipes."""

from typing import Annotated, Any, get_args, get_origin

from docstrings import field_docs, one_line, summary
from models import default_text, limits, type_text
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from advnorm.recipe import Recipe, ScheduleSpec, to_yaml
from advnorm.recipe.values import Unit

HEAD = "| key | values | default | unit | meaning |\n|---|---|---|---|---|"
SCHEDULES: tuple[type[BaseModel], ...] = get_args(get_args(ScheduleSpec)[0])


def page() -> str:
    """Return the page."""
    own, sections = [], []
    for name, field in Recipe.model_fields.items():
        spec = field.annotation
        if isinstance(spec, type) and issubclass(spec, BaseModel):
            sections.append(_section(name, spec, field_docs(Recipe)[name]))
        else:
            own.append(_row(name, field, field_docs(Recipe)[name]))
    return "\n\n".join(
        [
            "# Recipe",
            "Every key of a recipe. `--set KEY=VALUE` and YAML take the same keys and "
            "values; a number may be written as `8/255`. "
            "[How to train](../how-to/training.md) shows how recipes are used.",
            "## Keys of the run",
            "\n".join([HEAD, *own]),
            *sections,
            _schedules(),
            _defaults(),
        ]
    )


def _section(name: str, spec: type[BaseModel], doc: str) -> str:
    lines = [f"## {name}", one_line(doc), one_line(summary(spec.__doc__))]
    rows = [*_rows(f"{name}.", spec)]
    return "\n\n".join([*dict.fromkeys(lines), "\n".join([HEAD, *rows])])


def _rows(prefix: str, spec: type[BaseModel]) -> list[str]:
    docs, rows = field_docs(spec), []
    for name, field in spec.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            rows += _rows(f"{prefix}{name}.", inner)
        else:
            rows.append(_row(f"{prefix}{name}", field, docs[name]))
    return rows


def _row(key: str, field: FieldInfo, doc: str) -> str:
    values = "[schedule](#schedules)" if _is_schedule(field) else _values(field)
    cells = (f"`{key}`", values, default_text(field), _unit(field), one_line(doc))
    return f"| {' | '.join(cells)} |"


def _values(field: FieldInfo) -> str:
    within = limits(field)
    return type_text(field.annotation) + (f", {within}" if within else "")


def _is_schedule(field: FieldInfo) -> bool:
    return set(SCHEDULES) <= set(get_args(field.annotation))


def _unit(field: FieldInfo) -> str:
    """Return the unit of a number, wherever its type states it."""
    return next((item.name for item in _annotations(field) if isinstance(item, Unit)), "–")


def _annotations(field: FieldInfo) -> list[Any]:
    parts, extras = [field.annotation], [*field.metadata]
    while parts:
        part = parts.pop()
        if get_origin(part) is Annotated:
            extras += get_args(part)[1:]
        parts += get_args(part)
    return extras


def _schedules() -> str:
    kinds = [
        f"### {spec.model_fields['kind'].default}\n\n{one_line(spec.__doc__ or '')}\n\n"
        + "\n".join([HEAD, *_rows("", spec)])
        for spec in SCHEDULES
    ]
    intro = (
        "A schedule is a factor of a base value over the epochs, such as "
        "`optimizer.schedule: {kind: cosine, end: 30}`. It is replaced as a whole."
    )
    return "\n\n".join(["## Schedules", intro, *kinds])


def _defaults() -> str:
    text = to_yaml(Recipe())
    return f"## The defaults as YAML\n\n```yaml\n{text.rstrip()}\n```\n"
