"""What a run is made of: frozen, typed, validated; YAML in and out; ``8/255`` accepted."""

from advnorm.recipe.judging import Evaluation, Perturbation, Validation, Watch
from advnorm.recipe.schedule import Constant, Cosine, Cyclic, Piecewise, Ramp, ScheduleSpec
from advnorm.recipe.subject import Data, Model, Norm
from advnorm.recipe.text import (
    assignment,
    differences,
    from_yaml,
    override,
    parse,
    plain,
    read,
    to_yaml,
)
from advnorm.recipe.training import Attack, Gradient, Objective, Optimizer, ThreatSpec
from advnorm.recipe.values import (
    Count,
    Factor,
    Mode,
    Number,
    Option,
    Positive,
    RecipeError,
    Share,
    Spec,
    number,
    option,
)
from advnorm.recipe.whole import Recipe

__all__ = [
    "Attack",
    "Constant",
    "Cosine",
    "Count",
    "Cyclic",
    "Data",
    "Evaluation",
    "Factor",
    "Gradient",
    "Mode",
    "Model",
    "Norm",
    "Number",
    "Objective",
    "Optimizer",
    "Option",
    "Perturbation",
    "Piecewise",
    "Positive",
    "Ramp",
    "Recipe",
    "RecipeError",
    "ScheduleSpec",
    "Share",
    "Spec",
    "ThreatSpec",
    "Validation",
    "Watch",
    "assignment",
    "differences",
    "from_yaml",
    "number",
    "option",
    "override",
    "parse",
    "plain",
    "read",
    "to_yaml",
]
