"""All of a recipe."""

from typing import Annotated, Literal

from pydantic import Field

from advnorm.recipe.evaluation import Evaluation, Perturbation, Validation, Watch
from advnorm.recipe.network import Data, Model, Norm
from advnorm.recipe.training import Attack, Gradient, Objective, Optimizer, ThreatSpec
from advnorm.recipe.values import Count, Positive, Spec, Whole


class Recipe(Spec):
    """Everything that decides a training run, and how it is evaluated."""

    name: str = "unnamed"
    seed: Annotated[Whole, Field(ge=0, lt=2**31)] = 0
    data: Data = Data()
    model: Model = Model()
    norm: Norm = Norm()
    threat: ThreatSpec = ThreatSpec()
    objective: Objective = Objective()
    attack: Attack = Attack()
    gradient: Gradient = Gradient()
    optimizer: Optimizer = Optimizer()
    epochs: Count = 30
    batch_size: Count = 128
    precision: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    channels_last: bool = False
    compile: bool = False
    start: str | None = None
    """A run folder whose best weights training begins from."""
    checkpoint_seconds: Positive = 60.0
    """Longest time between two checkpoints; there is one after every epoch too."""
    watch: Watch = Watch()
    validation: Validation = Validation()
    evaluation: Evaluation = Evaluation()
    perturbation: Perturbation = Perturbation()
