"""Normalization layers, and scopes for their mode (statistics) and route (domains)."""

from advnorm.norms.affine import AffineNorm
from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.branched import BranchedNorm, active_branch, has_branches
from advnorm.norms.collapse import collapse
from advnorm.norms.convert import Conversion, convert, convert_with_notes
from advnorm.norms.dual import DualNorm, likelihood
from advnorm.norms.kinds import count_norms, has_norm
from advnorm.norms.median import MedianNorm, median_statistics
from advnorm.norms.mixture import MixtureNorm
from advnorm.norms.mode import (
    Mode,
    batch_norms,
    freeze_statistics,
    keep_statistics,
    mode,
    unsynced_statistics,
)
from advnorm.norms.perturbed import (
    StatisticsShift,
    StatisticsShifts,
    check_perturbable,
    perturbed,
    statistics_gradient,
    unperturbed,
)
from advnorm.norms.placement import SelectiveNorm, norm_parameters
from advnorm.norms.recalibrate import recalibrate
from advnorm.norms.route import Domain, Route, route, routed_layers, twice_differentiable
from advnorm.norms.standard import NORMS, BatchNorm, Norm
from advnorm.norms.statistics import check_statistics

__all__ = [
    "NORMS",
    "AffineNorm",
    "BatchNorm",
    "BorrowedNorm",
    "BranchedNorm",
    "Conversion",
    "Domain",
    "DualNorm",
    "MedianNorm",
    "MixtureNorm",
    "Mode",
    "Norm",
    "Route",
    "SelectiveNorm",
    "StatisticsShift",
    "StatisticsShifts",
    "active_branch",
    "batch_norms",
    "check_perturbable",
    "check_statistics",
    "collapse",
    "convert",
    "convert_with_notes",
    "count_norms",
    "freeze_statistics",
    "has_branches",
    "has_norm",
    "keep_statistics",
    "likelihood",
    "median_statistics",
    "mode",
    "norm_parameters",
    "perturbed",
    "recalibrate",
    "route",
    "routed_layers",
    "statistics_gradient",
    "twice_differentiable",
    "unperturbed",
    "unsynced_statistics",
]
