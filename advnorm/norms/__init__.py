"""Normalization: whose statistics, which domain, and does this pass move them."""

from advnorm.norms.mode import Mode, mode
from advnorm.norms.standard import NORMS, BatchNorm, Norm

__all__ = ["NORMS", "BatchNorm", "Mode", "Norm", "mode"]
