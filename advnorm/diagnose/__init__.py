"""Why a choice works or fails: one question a file, each answered by a record."""

from advnorm.diagnose.hessian import Spectrum, hessian, spectrum
from advnorm.diagnose.registry import QUESTIONS
from advnorm.diagnose.wasserstein import distances, from_running, squared_distance

__all__ = [
    "QUESTIONS",
    "Spectrum",
    "distances",
    "from_running",
    "hessian",
    "spectrum",
    "squared_distance",
]
