"""Training: the only part that turns a recipe into objects."""

from advnorm.data import expand_name
from advnorm.training.build import Experiment, build_experiment
from advnorm.training.components import build_model, load_data
from advnorm.training.guards import NotFiniteError
from advnorm.training.recipe_checks import check_recipe
from advnorm.training.run import how_to_resume, naming_options, train
from advnorm.training.stop import StoppedError
from advnorm.training.user_model_checks import with_digest

__all__ = [
    "Experiment",
    "NotFiniteError",
    "StoppedError",
    "build_experiment",
    "build_model",
    "check_recipe",
    "expand_name",
    "how_to_resume",
    "load_data",
    "naming_options",
    "train",
    "with_digest",
]
