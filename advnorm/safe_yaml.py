"""Load YAML safely: PyYAML's safe loader, size limits, no repeated keys.

Aliases share memory when they are read, but not when the value is written or traversed:
nine lines of ten aliases each are a billion values. So the limit counts the value with all
aliases expanded.
"""

from collections.abc import Callable, Iterator
from typing import Any

import yaml

from advnorm.text import cut

CHARACTERS = 1 << 18
"""The most characters of a document; a full recipe has about 3,000."""
SCALAR = 3000
"""The most characters of a single value."""
DEPTH = 50
"""The most levels of nested lists and mappings."""
VALUES = 10_000
"""The most values of a document with its aliases expanded."""

_MERGE = "tag:yaml.org,2002:merge"


def load(text: str) -> Any:
    """Return the value of one YAML document.

    Refused are documents beyond the limits above, values that contain themselves, and
    repeated keys: YAML forbids them, and PyYAML silently takes the last one.

    Raises:
        ValueError: With one sentence.

    >>> load("epochs: 3")
    {'epochs': 3}
    """
    try:
        _check_events(text)
        return _load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"this is not YAML: {cut(str(error), 1000)}") from None


def _check_events(text: str) -> None:
    """Refuse a text that is too long or too deep, before anything is built from it."""
    if len(text) > CHARACTERS:
        raise ValueError(
            f"this has {len(text)} characters of YAML; {CHARACTERS} are allowed"
        )
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > SCALAR:
            raise ValueError(
                f"line {_line(event)} has a value of {len(event.value)} "
                f"characters; {SCALAR} are allowed"
            )
        if depth > DEPTH:
            raise ValueError(
                f"line {_line(event)} has more than {DEPTH} levels of nested lists "
                "and mappings"
            )
        if count > 2 * VALUES:  # a value has a start event and perhaps an end event
            raise _too_many()


def _load(text: str) -> Any:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _expanded_size(node, {}) > VALUES:
            raise _too_many()
        for mapping in _mappings(node):
            _refuse_repeated(loader, mapping)
        return _construct(loader.construct_document, node)
    finally:
        loader.dispose()


def _too_many() -> ValueError:
    return ValueError(
        f"this has more than {VALUES} values with its aliases (*name) expanded"
    )


def _construct(construct: Callable[[yaml.Node], Any], node: yaml.Node) -> Any:
    """Build a value; PyYAML raises various errors for invalid numbers and dates."""
    try:
        return construct(node)
    except yaml.YAMLError:
        raise
    except Exception as error:
        raise ValueError(
            f"line {_line(node)} begins a value that cannot be read "
            f"({type(error).__name__}: {cut(str(error))})"
        ) from None


def _expanded_size(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Return the number of values in a node with aliases expanded; visit each node once."""
    if id(node) in sizes:
        size = sizes[id(node)]
        if size is None:
            raise ValueError(f"line {_line(node)} has a value that contains itself")
        return size
    sizes[id(node)] = None  # while it is being counted
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    total = 1 + sum(_expanded_size(part, sizes) for part in parts)
    sizes[id(node)] = total
    return total


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Yield every mapping once, also one that aliases repeat."""
    stack, visited = [root], set()
    while stack:
        node = stack.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            stack += [part for pair in reversed(node.value) for part in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            stack += reversed(node.value)


def _refuse_repeated(loader: yaml.SafeLoader, mapping: yaml.MappingNode) -> None:
    lines: dict[Any, int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        name = _construct(loader.construct_object, key)
        line = _line(key)
        if name in lines:
            raise ValueError(
                f"the key {cut(key.value)!r} of line {line} is already in line "
                f"{lines[name]}: remove one of them"
            )
        lines[name] = line


def _line(place: yaml.Node | yaml.Event) -> int:
    return place.start_mark.line + 1 if place.start_mark else 1
