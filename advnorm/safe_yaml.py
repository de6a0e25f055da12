"""YAML by the safe loader, within limits, in which every key stands once.

Aliases are shared when they are read, but whoever writes or walks the value meets each of
them again: nine lines of ten aliases each are a billion values. So what counts against the
limit is the value written out in full.
"""

from collections.abc import Callable, Iterator
from typing import Any

import yaml

from advnorm.text import cut

CHARACTERS = 1 << 18
"""Of a document; a recipe in full has about 3,000."""
SCALAR = 3000
"""Characters of a single value."""
DEPTH = 50
"""Levels of lists and mappings in each other."""
VALUES = 10_000
"""Values of a document, those of an alias counted wherever it stands."""

_MERGE = "tag:yaml.org,2002:merge"


def load(text: str) -> Any:
    """Return the value of one YAML document.

    Refused are documents beyond the limits above, values that hold themselves, and a key
    that stands twice: YAML forbids it, and PyYAML silently takes the last one.

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
    """Refuse a text that is too long or too deep, before anything is built of it."""
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
                f"line {_line(event)} has more than {DEPTH} levels of lists "
                "and mappings in each other"
            )
        if count > 2 * VALUES:  # a value has a beginning and perhaps an end
            raise _too_many()


def _load(text: str) -> Any:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _written_out(node, {}) > VALUES:
            raise _too_many()
        for mapping in _mappings(node):
            _refuse_repeated(loader, mapping)
        return _construct(loader.construct_document, node)
    finally:
        loader.dispose()


def _too_many() -> ValueError:
    return ValueError(
        f"this has more than {VALUES} values with its aliases (*name) written out"
    )


def _construct(construct: Callable[[yaml.Node], Any], node: yaml.Node) -> Any:
    """Build a value; PyYAML raises many errors for a number or date that is none."""
    try:
        return construct(node)
    except yaml.YAMLError:
        raise
    except Exception as error:
        raise ValueError(
            f"line {_line(node)} begins a value that cannot be read "
            f"({type(error).__name__}: {cut(str(error))})"
        ) from None


def _written_out(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Return how many values a node holds without any sharing; each node is met once."""
    if id(node) in sizes:
        size = sizes[id(node)]
        if size is None:
            raise ValueError(f"line {_line(node)} has a value that holds itself")
        return size
    sizes[id(node)] = None  # while it is open
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    total = 1 + sum(_written_out(part, sizes) for part in parts)
    sizes[id(node)] = total
    return total


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Return every mapping once; by aliases one may stand in many places."""
    left, met = [root], set()
    while left:
        node = left.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            left += [part for pair in reversed(node.value) for part in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            left += reversed(node.value)


def _refuse_repeated(loader: yaml.SafeLoader, mapping: yaml.MappingNode) -> None:
    lines: dict[Any, int] = {}
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        name = _construct(loader.construct_object, key)
        line = _line(key)
        if name in lines:
            raise ValueError(
                f"the key {cut(key.value)!r} of line {line} stands in line {lines[name]} "
                "already: leave one of them out"
            )
        lines[name] = line


def _line(place: yaml.Node | yaml.Event) -> int:
    return place.start_mark.line + 1 if place.start_mark else 1
