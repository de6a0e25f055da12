"""Why a choice works or fails: one question per file, each answered by a record."""

from advnorm.diagnosis.attacked_loss import attacked_loss
from advnorm.diagnosis.branches import branches
from advnorm.diagnosis.dead import dead
from advnorm.diagnosis.depth_pca import depth_pca
from advnorm.diagnosis.fooling_images import fooling_images
from advnorm.diagnosis.gradient_norm import gradient_norm
from advnorm.diagnosis.hessian import Spectrum, hessian, spectrum
from advnorm.diagnosis.input_dimension import input_dimension
from advnorm.diagnosis.minimal_examples import minimal_examples
from advnorm.diagnosis.moments import moments
from advnorm.diagnosis.nearest_centroid import nearest_centroid
from advnorm.diagnosis.pca import pca
from advnorm.diagnosis.registry import QUESTIONS, REVISIONS
from advnorm.diagnosis.smoothness import smoothness
from advnorm.diagnosis.source_target import source_target
from advnorm.diagnosis.statistics_gap import statistics_gap
from advnorm.diagnosis.surface import surface
from advnorm.diagnosis.tilt import tilt
from advnorm.diagnosis.top_k import top_k
from advnorm.diagnosis.toy import toy
from advnorm.diagnosis.trainable_depth import trainable_depth
from advnorm.diagnosis.tuned_norms import tuned_norms
from advnorm.diagnosis.wasserstein import (
    distance_from_running,
    distances,
    squared_distance,
    wasserstein,
)
from advnorm.diagnosis.weights import weights

__all__ = [
    "QUESTIONS",
    "REVISIONS",
    "Spectrum",
    "attacked_loss",
    "branches",
    "dead",
    "depth_pca",
    "distance_from_running",
    "distances",
    "fooling_images",
    "gradient_norm",
    "hessian",
    "input_dimension",
    "minimal_examples",
    "moments",
    "nearest_centroid",
    "pca",
    "smoothness",
    "source_target",
    "spectrum",
    "squared_distance",
    "statistics_gap",
    "surface",
    "tilt",
    "top_k",
    "toy",
    "trainable_depth",
    "tuned_norms",
    "wasserstein",
    "weights",
]
