"""Normalization: whose statistics, which domain, and does this pass move them."""

from advnorm.norms.borrowed import BorrowedNorm
from advnorm.norms.convert import check_statistics, collapse, convert
from advnorm.norms.dual import DualNorm, likelihood
from advnorm.norms.mixture import MixtureNorm, branch
from advnorm.norms.mode import (
    Mode,
    batch_norms,
    freeze_statistics,
    keep_statistics,
    mode,
    unsynced,
)
from advnorm.norms.perturbed import (
    Shift,
    Shifts,
    check_perturbable,
    perturbed,
    statistics_gradient,
    unperturbed,
)
from advnorm.norms.placement import Chosen, norm_parameters
from advnorm.norms.route import Domain, Route, route, routed, twice
from advnorm.norms.standard import NORMS, BatchNorm, Norm

__all__ = [
    "NORMS",
    "BatchNorm",
    "BorrowedNorm",
    "Chosen",
    "Domain",
    "DualNorm",
    "MixtureNorm",
    "Mode",
    "Norm",
    "Route",
    "Shift",
    "Shifts",
    "batch_norms",
    "branch",
    "check_perturbable",
    "check_statistics",
    "collapse",
    "convert",
    "freeze_statistics",
    "keep_statistics",
    "likelihood",
    "mode",
    "norm_parameters",
    "perturbed",
    "route",
    "routed",
    "statistics_gradient",
    "twice",
    "unperturbed",
    "unsynced",
]
