"""Training: the only part that turns a recipe into objects."""

from advnorm.data import expand_name
from advnorm.training.build import Job, build, check
from advnorm.training.components import load, network
from advnorm.training.guards import NotFiniteError
from advnorm.training.run import how_to_resume, train
from advnorm.training.stop import StoppedError

__all__ = [
    "Job",
    "NotFiniteError",
    "StoppedError",
    "build",
    "check",
    "expand_name",
    "how_to_resume",
    "load",
    "network",
    "train",
]
