"""YAML by the safe loader, in which every key stands once."""

from collections.abc import Iterator
from typing import Any

import yaml

from advnorm.recipe.values import RecipeError

_MERGE = "tag:yaml.org,2002:merge"


def load(text: str) -> Any:
    """Return the value of one YAML document; a key that stands twice is refused.

    YAML forbids it, and PyYAML silently takes the last one.

    >>> load("epochs: 3")
    {'epochs': 3}
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for mapping in _mappings(node):
            _refuse_repeated(loader, mapping)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _mappings(root: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Return every mapping once; by aliases one may stand in many places, or in itself."""
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
        name, line = loader.construct_object(key), key.start_mark.line + 1
        if name in lines:
            raise RecipeError(
                f"the key {key.value!r} of line {line} stands in line {lines[name]} "
                "already: leave one of them out"
            )
        lines[name] = line
