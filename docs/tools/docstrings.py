"""Docstrings as the generated pages need them: of fields and data, and as Markdown."""

import ast
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc, getmodule
from pathlib import Path
from types import ModuleType

Assignments = dict[str, tuple[ast.expr | None, str]]
"""By name: the annotation of an assignment, and the docstring below it."""


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec and spec.origin, module
    return ast.parse(Path(spec.origin).read_text())


def _assignments(body: list[ast.stmt]) -> Assignments:
    descriptions: Assignments = {}
    for statement, following in zip(body, [*body[1:], None], strict=True):
        names: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            names, annotation = statement.targets, None
        elif isinstance(statement, ast.AnnAssign):
            names, annotation = [statement.target], statement.annotation
        for name in names:
            if isinstance(name, ast.Name):
                descriptions[name.id] = (annotation, _text(following))
    return descriptions


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return cleandoc(str(statement.value.value))
    return ""


def fields_of(owner: type) -> Assignments:
    """Return what is assigned in the body of a class."""
    module = getmodule(owner)
    assert module
    for node in ast.walk(_tree(module.__name__)):
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
            return _assignments(node.body)
    return {}


def field_docs(owner: type) -> dict[str, str]:
    """Return the docstrings of a class's fields, those of its bases included.

    >>> from advnorm.recipe import AttackSpec
    >>> field_docs(AttackSpec)["steps"]
    'Gradient steps.'
    """
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("advnorm"):
            docs |= {name: doc for name, (_, doc) in fields_of(base).items() if doc}
    return docs


def data_home(module: str, name: str) -> str:
    """Return the module that assigns ``name``, which ``module`` may only pass on.

    >>> data_home("advnorm.norms", "NORMS")
    'advnorm.norms.standard'
    """
    for node in _tree(module).body:
        imported = node.names if isinstance(node, ast.ImportFrom) else []
        if any((alias.asname or alias.name) == name for alias in imported):
            assert isinstance(node, ast.ImportFrom) and node.module
            return data_home(node.module, name)
    return module


def data_doc(module: str, name: str) -> str:
    """Return the docstring below the assignment of ``name``.

    >>> data_doc("advnorm.records", "ConditionKind").partition(":")[0]
    'What a model is tested with'
    """
    body = _tree(data_home(module, name)).body
    return _assignments(body).get(name, (None, ""))[1]


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: its ``__all__``, or what it defines itself."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    tree = _tree(module.__name__).body
    defined = [n.name for n in tree if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    documented = [name for name, (_, doc) in _assignments(tree).items() if doc]
    return sorted(name for name in (*defined, *documented) if not name.startswith("_"))


_ROLE = re.compile(r":(\w+):`(?:([^`<]+?) ?<[^`>]+>|(~?)([^`]+))`")


def markdown(text: str) -> str:
    r"""Turn the reStructuredText of our docstrings into Markdown.

    >>> markdown("As :func:`~advnorm.norms.mode`: ``eps`` is :math:`\\epsilon`.")
    'As `mode`: `eps` is $\\epsilon$.'
    """

    def role(match: re.Match[str]) -> str:
        name, title, short, target = match.groups()
        if name == "math":
            return f"${target}$"
        shown = title or (target.rpartition(".")[2] if short else target)
        return f"`{shown}`"

    text = re.sub(r"``([^`]+)``", r"`\1`", _ROLE.sub(role, text))
    return re.sub(
        r"^\.\. math::[ \t]*(.*(?:\n(?:[ \t]+.*|[ \t]*(?=\n[ \t])))*)",
        lambda match: f"$$\n{cleandoc(match[1]).strip()}\n$$\n",
        text,
        flags=re.MULTILINE,
    )


def one_line(text: str) -> str:
    """Return Markdown that fits into a cell of a table."""
    return " ".join(markdown(text).split()).replace("|", "\\|")


def summary(doc: str | None) -> str:
    """Return the first paragraph of a docstring."""
    return cleandoc(doc or "").partition("\n\n")[0]


def load(target: str) -> object | None:
    """Return the object that a dotted name names, or None."""
    parts = target.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: object = import_module(".".join(parts[:end]))
        except (ImportError, ValueError):
            continue
        for part in parts[end:]:
            if not hasattr(thing, part):
                return None
            thing = getattr(thing, part)
        return thing
    return None
