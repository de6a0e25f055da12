"""Sitawarin et al. (2021): the accuracy-robustness trade-off of two-domain training."""

from advnorm.papers.sitawarin2021 import batching, divergence, dual, false_robustness

__all__ = ["batching", "divergence", "dual", "false_robustness"]
