"""Why a choice works or fails: one question a file, each answered by a record."""

from advnorm.diagnose.dead import dead
from advnorm.diagnose.hessian import Spectrum, hessian, spectrum
from advnorm.diagnose.pca import pca
from advnorm.diagnose.registry import QUESTIONS
from advnorm.diagnose.smoothness import smoothness
from advnorm.diagnose.surface import surface
from advnorm.diagnose.wasserstein import distances, from_running, squared_distance

__all__ = [
    "QUESTIONS",
    "Spectrum",
    "dead",
    "distances",
    "from_running",
    "hessian",
    "pca",
    "smoothness",
    "spectrum",
    "squared_distance",
    "surface",
]
