"""Evaluation of any model: ``advnorm.evaluate(model, images, labels, eps=8/255)``."""

import sys
from types import ModuleType

from advnorm.evaluate import audit
from advnorm.evaluate.api import Evaluation, evaluate
from advnorm.evaluate.cells import Cell, cells
from advnorm.evaluate.checks import check_radius
from advnorm.evaluate.engine import judge
from advnorm.evaluate.matrix import transfer
from advnorm.evaluate.names import OPTIONS, SUITES
from advnorm.evaluate.statistics import Perturbation, perturbed_statistics

__all__ = [
    "OPTIONS",
    "SUITES",
    "Cell",
    "Evaluation",
    "Perturbation",
    "audit",
    "cells",
    "check_radius",
    "evaluate",
    "judge",
    "perturbed_statistics",
    "transfer",
]


class _CallableModule(ModuleType):
    """``advnorm.evaluate(...)`` is the function, ``advnorm.evaluate.x`` are its parts."""

    __call__ = staticmethod(evaluate)


sys.modules[__name__].__class__ = _CallableModule
