"""Adversarial training, attacks and diagnostics under any normalization.

Importing the package is cheap: its parts are imported when they are first named.
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_PARTS = (
    "attacks",
    "data",
    "diagnose",
    "evaluate",
    "models",
    "norms",
    "objectives",
    "report",
    "train",
)


def __getattr__(name: str) -> ModuleType:
    if name in _PARTS:
        return import_module(f"advnorm.{name}")
    raise AttributeError(f"module 'advnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_PARTS]
