"""Train, attack and certify networks under any normalization.

``import advnorm`` is cheap: functions, threats and packages are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advnorm import (
        attacks,
        bounds,
        data,
        diagnosis,
        evaluation,
        gradients,
        models,
        norms,
        objectives,
        recipe,
        recipes,
        records,
        report,
        runs,
        schedules,
        studies,
        threat,
        training,
    )
    from advnorm.bounds import certify
    from advnorm.evaluation import audit, evaluate
    from advnorm.runs import diagnose_model as diagnose
    from advnorm.runs import export_model as export
    from advnorm.runs import load_model as load
    from advnorm.studies import study
    from advnorm.threat import L0, L1, L2, Linf
    from advnorm.training import train

__version__ = "0.1.0"

__all__ = [
    "L0",
    "L1",
    "L2",
    "Linf",
    "attacks",
    "audit",
    "bounds",
    "certify",
    "data",
    "diagnose",
    "diagnosis",
    "evaluate",
    "evaluation",
    "export",
    "gradients",
    "load",
    "models",
    "norms",
    "objectives",
    "recipe",
    "recipes",
    "records",
    "report",
    "runs",
    "schedules",
    "studies",
    "study",
    "threat",
    "train",
    "training",
]

_FUNCTIONS = {
    "L0": ("threat", "L0"),
    "L1": ("threat", "L1"),
    "L2": ("threat", "L2"),
    "Linf": ("threat", "Linf"),
    "audit": ("evaluation", "audit"),
    "certify": ("bounds", "certify"),
    "diagnose": ("runs", "diagnose_model"),
    "evaluate": ("evaluation", "evaluate"),
    "export": ("runs", "export_model"),
    "load": ("runs", "load_model"),
    "study": ("studies", "study"),
    "train": ("training", "train"),
}


def __getattr__(name: str) -> Any:
    """Import a function, threat or package when it is first used."""
    if name in _FUNCTIONS:
        module, attribute = _FUNCTIONS[name]
        return getattr(import_module(f"advnorm.{module}"), attribute)
    if name in __all__:
        return import_module(f"advnorm.{name}")
    raise AttributeError(f"module 'advnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
