"""Why a choice works or fails: one question a file, each answered by a record."""

from advnorm.diagnose.branches import branches
from advnorm.diagnose.dead import dead
from advnorm.diagnose.hessian import Spectrum, hessian, spectrum
from advnorm.diagnose.pca import pca
from advnorm.diagnose.registry import QUESTIONS
from advnorm.diagnose.smoothness import smoothness
from advnorm.diagnose.surface import surface
from advnorm.diagnose.tilt import tilt
from advnorm.diagnose.toy import toy
from advnorm.diagnose.wasserstein import distances, from_running, squared_distance
from advnorm.diagnose.weights import weights

__all__ = [
    "QUESTIONS",
    "Spectrum",
    "branches",
    "dead",
    "distances",
    "from_running",
    "hessian",
    "pca",
    "smoothness",
    "spectrum",
    "squared_distance",
    "surface",
    "tilt",
    "toy",
    "weights",
]
