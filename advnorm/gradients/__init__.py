"""Gradient rules: how a step computes its gradient, for any objective."""

from advnorm.gradients.batch_objective import BatchObjective
from advnorm.gradients.rules import (
    GRADIENTS,
    GradientRule,
    apart,
    apart_sam,
    check_options,
    perturbs_statistics,
    plain,
    sam,
)

__all__ = [
    "GRADIENTS",
    "BatchObjective",
    "GradientRule",
    "apart",
    "apart_sam",
    "check_options",
    "perturbs_statistics",
    "plain",
    "sam",
]
