"""Is this robustness real? The checks of an audit, by topic."""

from advnorm.evaluation.checks.auditor import audit, probe
from advnorm.evaluation.checks.context import CHECKS
from advnorm.records import Audit, Check

__all__ = ["CHECKS", "Audit", "Check", "audit", "probe"]
