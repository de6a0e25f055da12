"""The questions by name."""

from collections.abc import Callable

from advnorm.records import Diagnosis
from advnorm.registry import Registry

QUESTIONS: Registry[Callable[..., Diagnosis]] = Registry("question")
