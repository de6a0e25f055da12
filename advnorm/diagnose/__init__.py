"""Why a choice works or fails: one question a file, each answered by a record."""

from advnorm.diagnose.hessian import Spectrum, hessian, spectrum
from advnorm.diagnose.registry import QUESTIONS

__all__ = ["QUESTIONS", "Spectrum", "hessian", "spectrum"]
