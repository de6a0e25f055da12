"""Evaluation of any model: ``advnorm.evaluate(model, images, labels, eps=8/255)``."""

from advnorm.evaluation.api import Evaluation, evaluate
from advnorm.evaluation.checks import audit
from advnorm.evaluation.condition_names import OPTIONS, SUITES
from advnorm.evaluation.conditions import Cell, cells
from advnorm.evaluation.engine import judge
from advnorm.evaluation.inputs import check_radius
from advnorm.evaluation.perturbed_statistics import Perturbation, perturbed_statistics
from advnorm.evaluation.transferability import transfer

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
