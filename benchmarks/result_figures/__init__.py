"""The figures of docs/results: which numbers of which records each of them shows.

Drawn is what says more as a picture than as a table: curves, trade-offs, clouds, weights.
A bar is two standard errors over seeds long to each side, as claims are judged; hollow
markers are the paper's numbers.
"""

from collections.abc import Callable

from result_figures import (
    apart2022,
    galloway2019_full,
    galloway2019_pictures,
    galloway2019_reduced,
    readme,
    sitawarin2021,
    sridhar2021,
    xie2020,
)
from result_figures.contents import Drawing, Results

FIGURES: tuple[Callable[[Results], Drawing], ...] = (
    readme.cost_or_help,
    galloway2019_full.image_size,
    galloway2019_full.attacked_loss,
    galloway2019_full.constant_or_decay,
    galloway2019_full.tilt,
    galloway2019_pictures.tilt_weights,
    galloway2019_pictures.fooling,
    galloway2019_pictures.nearest_examples,
    galloway2019_reduced.depth,
    galloway2019_reduced.circles,
    galloway2019_reduced.corruptions,
    xie2020.clean_share,
    xie2020.pgd_steps,
    xie2020.branch_statistics,
    sitawarin2021.gamma,
    sitawarin2021.trade_off,
    sitawarin2021.statistics_lag,
    sitawarin2021.clouds,
    sridhar2021.smoothness,
    sridhar2021.sizes,
    sridhar2021.certified_sizes,
    sridhar2021.certified,
    apart2022.perturbations,
    apart2022.perturbed_tests,
)
