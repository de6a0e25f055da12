"""Is this robustness real? The checks of an audit, by topic."""

from advnorm.evaluation.checks.context import CHECKS
from advnorm.evaluation.checks.examiner import audit, probe
from advnorm.records import Audit, Check

__all__ = ["CHECKS", "Audit", "Check", "audit", "probe"]
