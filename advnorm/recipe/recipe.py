"""All of a recipe, and how to change it in Python."""

from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack

from pydantic import Field

from advnorm.recipe.data_and_model import DataSpec, ModelSpec, NormSpec
from advnorm.recipe.evaluation import (
    EvaluationSpec,
    MonitorSpec,
    PerturbationSpec,
    ValidationSpec,
)
from advnorm.recipe.training import (
    AttackSpec,
    GradientSpec,
    ObjectiveSpec,
    OptimizerSpec,
    ThreatSpec,
)
from advnorm.recipe.values import Count, Positive, Samples, Spec, Unit, Whole

S = TypeVar("S", bound=Spec)
Precision = Literal["float32", "bfloat16", "float16", "float64"]


class RecipeChanges(TypedDict, total=False):
    """Settings of a recipe that :meth:`Recipe.replace` changes."""

    name: str
    seed: int
    data: DataSpec
    model: ModelSpec
    norm: NormSpec
    threat: ThreatSpec
    objective: ObjectiveSpec
    attack: AttackSpec
    gradient: GradientSpec
    optimizer: OptimizerSpec
    epochs: int
    batch_size: int
    precision: Precision
    channels_last: bool
    compile: bool | Literal["auto"]
    init_from: str | None
    checkpoint_seconds: float
    monitor: MonitorSpec
    validation: ValidationSpec
    evaluation: EvaluationSpec
    perturbation: PerturbationSpec


class Recipe(Spec):
    """Everything that decides a training run, and how it is evaluated."""

    name: str = "unnamed"
    """Of the report; it decides nothing."""
    seed: Annotated[Whole, Field(ge=0, lt=2**31)] = 0
    """All random numbers are a function of it."""
    data: DataSpec = DataSpec()
    """The images, and how they are prepared."""
    model: ModelSpec = ModelSpec()
    """The network."""
    norm: NormSpec = NormSpec()
    """The normalization layers."""
    threat: ThreatSpec = ThreatSpec()
    """The ball around each image that the adversary may use."""
    objective: ObjectiveSpec = ObjectiveSpec()
    """The loss."""
    attack: AttackSpec = AttackSpec()
    """The attack of adversarial training."""
    gradient: GradientSpec = GradientSpec()
    """How the gradient of a step is computed."""
    optimizer: OptimizerSpec = OptimizerSpec()
    """How the gradient changes the weights."""
    epochs: Annotated[Count, Unit("epochs")] = 30
    """Passes over the training samples."""
    batch_size: Samples = 128
    """Samples of a step, over all ranks together."""
    precision: Precision = "float32"
    """Of the passes in training. With half precision the weights stay in float32."""
    channels_last: bool = False
    """Memory layout of images and weights."""
    compile: bool | Literal["auto"] = False
    """Use ``torch.compile``; with ``auto`` where a trial of a few steps shows that it pays
    within this training, compiling included."""
    init_from: str | None = None
    """A run folder; training starts from its best weights."""
    checkpoint_seconds: Annotated[Positive, Unit("seconds")] = 60.0
    """Longest time between two checkpoints; there is also one after every epoch."""
    monitor: MonitorSpec = MonitorSpec()
    """Measurements during training, which do not change it."""
    validation: ValidationSpec = ValidationSpec()
    """The held-out accuracies that select the best checkpoint."""
    evaluation: EvaluationSpec = EvaluationSpec()
    """What ``advnorm evaluate`` does."""
    perturbation: PerturbationSpec = PerturbationSpec()
    """How ``advnorm perturb`` changes batch-norm statistics."""

    def replace(self, **changes: Unpack[RecipeChanges]) -> "Recipe":
        """Return a copy with some settings changed.

        Of a section, the settings that are written change and the others stay.

        >>> from advnorm.recipe import OptimizerSpec
        >>> adam = Recipe(optimizer=OptimizerSpec(name="adam", lr=0.001))
        >>> adam.replace(epochs=2, optimizer=OptimizerSpec(lr=0.01)).optimizer.name
        'adam'
        """
        return updated(self, Recipe(**changes))


def updated(spec: S, changes: S) -> S:
    """Return a section with the settings that were written in ``changes``.

    Sections inside it are updated in the same way; a schedule is replaced as a whole.
    """
    values: dict[str, Any] = {}
    for name in changes.model_fields_set:
        before, after = getattr(spec, name), getattr(changes, name)
        nested = isinstance(after, Spec) and "kind" not in type(after).model_fields
        values[name] = updated(before, after) if nested else after
    changed = spec.model_copy(update=values)
    type(spec).model_validate(dict(changed))  # settings may exclude each other
    return changed
