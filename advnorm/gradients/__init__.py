"""How a step's gradient is obtained, given an objective; orthogonal to the objective."""

from advnorm.gradients.problem import Problem
from advnorm.gradients.rules import (
    GRADIENTS,
    Rule,
    apart,
    apart_sam,
    check,
    perturbs_statistics,
    plain,
    sam,
)

__all__ = [
    "GRADIENTS",
    "Problem",
    "Rule",
    "apart",
    "apart_sam",
    "check",
    "perturbs_statistics",
    "plain",
    "sam",
]
