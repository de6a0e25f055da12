"""How it is trained: against whom, for what, by which gradient and steps."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from advnorm.recipe.schedule import Constant, ScheduleSpec
from advnorm.recipe.values import (
    Count,
    Factor,
    Mode,
    Number,
    Positive,
    Share,
    Spec,
    number,
)
from advnorm.threat import THREATS, Threat


class ThreatSpec(Spec):
    """What the adversary may change."""

    norm: Literal["linf", "l2"] = "linf"
    eps: Positive = 0.1
    bounds: tuple[Number, Number] = (0.0, 1.0)
    schedule: ScheduleSpec = Constant()
    """Factor of eps over the epochs of training; at 0 the images stay clean."""

    def build(self) -> Threat:
        """Return the threat at full radius."""
        return THREATS[self.norm](self.eps, self.bounds)


class Attack(Spec):
    """The attack inside training: PGD."""

    steps: Count = 10
    steps_schedule: ScheduleSpec = Constant()
    """Factor of the number of steps over the epochs, at least one step."""
    step_size: Positive | None = None
    """In units of the norm; by default 2.5 eps / steps. Follows the schedule of eps."""
    target: Literal["none", "random", "least_likely"] = "none"
    clean_start: Share = 0.0
    """Start at the clean image with this probability (xie2020: 0.2), else in the ball."""
    statistics: Mode | dict[Number, Mode] = "running"
    """Which statistics the norms use while the attack searches; or by epoch, such as
    ``{0: batch, 30: running}``."""

    def statistics_at(self, epoch: float) -> Mode:
        """Return the statistics in use at a time in epochs."""
        if isinstance(self.statistics, str):
            return self.statistics
        begun = [start for start in self.statistics if start <= epoch]
        return self.statistics[max(begun)] if begun else "running"


class Objective(Spec):
    """What is minimized. A setting left out is the objective's own default."""

    name: str = "pgd"
    gamma: Share | None = None
    """Weight of the clean loss (mixed, alp, mixed_kl)."""
    gamma_schedule: ScheduleSpec = Constant()
    beta: Positive | None = None
    """Weight of the divergence (trades, mixed_kl), or of CROWN's bound (crown_ibp)."""
    beta_schedule: ScheduleSpec = Constant()
    kappa: Share | None = None
    """Weight of the clean loss beside a certified one (ibp, crown_ibp)."""
    kappa_schedule: ScheduleSpec = Constant()
    pairing: Positive | None = None
    """Weight of the distance of paired logits (alp)."""
    clean_share: Share | None = None
    """Share of the clean images that stay in the batch (mixed)."""
    batching: Literal["sequential", "concatenated"] | None = None
    likelihood: Factor | None = None
    """Weight of the dual norms' likelihood loss."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that were given."""
        names = ("gamma", "beta", "kappa", "pairing", "clean_share", "batching")
        given = {name: getattr(self, name) for name in (*names, "likelihood")}
        return {name: value for name, value in given.items() if value is not None}


class Gradient(Spec):
    """How a step's gradient is obtained: ``advnorm list gradients``.

    A setting left out is the rule's own default.
    """

    name: str = "plain"
    eps: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)] | None = None
    """Relative radius of the perturbed statistics (apart, apart_sam)."""
    rho: Factor | None = None
    """Radius of the perturbed weights (sam, apart_sam)."""
    samples: Count | None = None
    """How many samples of a batch the second pass takes; by default all."""
    groups: Count | None = None
    """How many groups of them are normalized each by itself."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that were given."""
        given = {key: getattr(self, key) for key in ("eps", "rho", "samples", "groups")}
        return {key: value for key, value in given.items() if value is not None}


class Optimizer(Spec):
    """How the weights move."""

    name: Literal["sgd", "adam", "rmsprop"] = "sgd"
    """RMSProp is that of Szegedy et al. (2016): decay 0.9, constant 1, and ``momentum``."""
    rate: Positive = 0.1
    schedule: ScheduleSpec = Constant()
    momentum: Share = 0.9
    nesterov: bool = False
    weight_decay: Factor = 0.0
    decay_norms: bool = True
    """Whether weight decay also reaches biases and the norms' own parameters."""
    scalar_factor: Positive = 1.0
    """Factor of the rate for parameters of a single number (Fixup: 0.1)."""
    only: Literal["all", "norms"] = "all"
    """Train everything, or the norms' own parameters alone (xie2020, 4.4)."""
    clip: Positive | None = None
    """Largest Euclidean norm of the gradient; a longer one is shortened."""
    accumulate: Count = 1
    """Parts of a batch that pass through the model one after the other, to save memory."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and self.name != "sgd":
            raise ValueError(f"{self.name} has no nesterov: write nesterov=false, or sgd")
        if self.nesterov and not self.momentum:
            raise ValueError(
                "nesterov looks ahead along the momentum, which is 0: write momentum=0.9, "
                "or nesterov=false"
            )
        return self
