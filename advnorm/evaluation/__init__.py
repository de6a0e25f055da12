"""Evaluation of any model: ``advnorm.evaluate(model, images, labels, Linf(8 / 255))``."""

from advnorm.evaluation.adaptation import LOSSES, Adaptation, adapted
from advnorm.evaluation.api import evaluate
from advnorm.evaluation.checks import audit
from advnorm.evaluation.condition_names import SUITES, parse_condition
from advnorm.evaluation.conditions import (
    Condition,
    certificate_condition,
    parse_conditions,
)
from advnorm.evaluation.engine import run_condition
from advnorm.evaluation.inputs import check_radius
from advnorm.evaluation.perturbed_statistics import Perturbation, perturbed_statistics
from advnorm.evaluation.results import Evaluation
from advnorm.evaluation.transferability import transfer

__all__ = [
    "LOSSES",
    "SUITES",
    "Adaptation",
    "Condition",
    "Evaluation",
    "Perturbation",
    "adapted",
    "audit",
    "certificate_condition",
    "check_radius",
    "evaluate",
    "parse_condition",
    "parse_conditions",
    "perturbed_statistics",
    "run_condition",
    "transfer",
]
