"""Faults planted into the entry of an operation."""

from dataclasses import replace

from torch import nn

from advnorm.bounds.operations import FUNCTIONS, LAYERS


def change_entry(monkeypatch, key: type[nn.Module] | str, **changes: object) -> None:
    """Change the entry of a layer type or of a function, for this test alone."""
    table = FUNCTIONS if isinstance(key, str) else LAYERS
    monkeypatch.setitem(table, key, replace(table[key], **changes))
