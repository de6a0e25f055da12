"""Why a choice works or fails: one question a file, each answered by a record."""

from advnorm.diagnose.attacked import attacked_loss
from advnorm.diagnose.branches import branches
from advnorm.diagnose.dead import dead
from advnorm.diagnose.depth_pca import depth_pca
from advnorm.diagnose.fooling_images import fooling_images
from advnorm.diagnose.gradient_norm import gradient_norm
from advnorm.diagnose.hessian import Spectrum, hessian, spectrum
from advnorm.diagnose.input_dimension import input_dimension
from advnorm.diagnose.minimal_examples import minimal_examples
from advnorm.diagnose.moments import moments
from advnorm.diagnose.pca import pca
from advnorm.diagnose.registry import QUESTIONS, REVISIONS
from advnorm.diagnose.smoothness import smoothness
from advnorm.diagnose.source_target import source_target
from advnorm.diagnose.surface import surface
from advnorm.diagnose.tilt import tilt
from advnorm.diagnose.top_k import top_k
from advnorm.diagnose.toy import toy
from advnorm.diagnose.trainable_depth import trainable_depth
from advnorm.diagnose.wasserstein import (
    distances,
    from_running,
    squared_distance,
    wasserstein,
)
from advnorm.diagnose.weights import weights

__all__ = [
    "QUESTIONS",
    "REVISIONS",
    "Spectrum",
    "attacked_loss",
    "branches",
    "dead",
    "depth_pca",
    "distances",
    "fooling_images",
    "from_running",
    "gradient_norm",
    "hessian",
    "input_dimension",
    "minimal_examples",
    "moments",
    "pca",
    "smoothness",
    "source_target",
    "spectrum",
    "squared_distance",
    "surface",
    "tilt",
    "top_k",
    "toy",
    "trainable_depth",
    "wasserstein",
    "weights",
]
