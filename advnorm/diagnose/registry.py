"""The questions by name."""

from collections.abc import Callable

from advnorm.records import Diagnosis
from advnorm.registry import Registry

QUESTIONS: Registry[Callable[..., Diagnosis]] = Registry("question")
REVISIONS = {"branches": 2, "depth_pca": 2, "distances": 2, "pca": 2}
"""How often what a question measures was defined anew: an answer is of its revision."""
