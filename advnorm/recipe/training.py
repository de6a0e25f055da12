"""The sections of training: threat, attack, objective, gradient rule and optimizer."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from advnorm.recipe.schedule import Constant, ScheduleSpec
from advnorm.recipe.values import (
    Count,
    Factor,
    Mode,
    Number,
    PixelDistance,
    Positive,
    Samples,
    Share,
    Spec,
    Unit,
    number,
)
from advnorm.threat import THREATS, Threat


class ThreatSpec(Spec):
    """The ball around each image that the adversary may use."""

    norm: Literal["linf", "l2", "l1", "l0"] = "linf"
    """The norm of the ball."""
    eps: PixelDistance = 0.1
    """Its radius."""
    bounds: Annotated[tuple[Number, Number], Unit("pixel values")] = (0.0, 1.0)
    """The smallest and the largest value of a pixel."""
    schedule: ScheduleSpec = Constant()
    """Factor of eps over the epochs of training; at 0 the images stay clean."""

    def build(self) -> Threat:
        """Return the threat at full radius."""
        return THREATS[self.norm](self.eps, self.bounds)


class AttackSpec(Spec):
    """The attack of adversarial training: PGD."""

    steps: Count = 10
    """Gradient steps."""
    steps_schedule: ScheduleSpec = Constant()
    """Factor of the number of steps over the epochs; there is at least one step."""
    step_size: PixelDistance | None = None
    """Length of a step; by default 2.5 eps / steps. It follows the schedule of eps."""
    target: Literal["none", "random", "least_likely"] = "none"
    """Untargeted, or towards a random class or the least likely one."""
    clean_start: Annotated[Share, Unit("probability")] = 0.0
    """Probability of starting at the clean image (xie2020: 0.2) and not in the ball."""
    statistics: Mode | dict[Number, Mode] = "running"
    """The statistics that norms use during the attack; or by epoch, such as
    ``{0: batch, 30: running}``."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the attack's passes: that of the training, or bfloat16, which is faster. Weights'
    gradients and statistics stay in that of the training."""

    def statistics_at(self, epoch: float) -> Mode:
        """Return the statistics in use at a time in epochs."""
        if isinstance(self.statistics, str):
            return self.statistics
        begun = [start for start in self.statistics if start <= epoch]
        return self.statistics[max(begun)] if begun else "running"


class ObjectiveSpec(Spec):
    """A setting that is left out has the objective's own default."""

    name: str = "pgd"
    """``advnorm list objectives``."""
    gamma: Share | None = None
    """Weight of the clean loss (mixed, alp, mixed_kl)."""
    gamma_schedule: ScheduleSpec = Constant()
    """Factor of ``gamma`` over the epochs."""
    beta: Positive | None = None
    """Weight of the divergence (trades, mixed_kl), or of CROWN's bound (crown_ibp)."""
    beta_schedule: ScheduleSpec = Constant()
    """Factor of ``beta`` over the epochs."""
    kappa: Share | None = None
    """Weight of the clean loss beside a certified one (ibp, crown_ibp)."""
    kappa_schedule: ScheduleSpec = Constant()
    """Factor of ``kappa`` over the epochs."""
    pairing: Positive | None = None
    """Weight of the distance of paired logits (alp)."""
    clean_share: Annotated[Share, Unit("share of the batch")] | None = None
    """Fraction of the clean images that stays in the batch (mixed)."""
    batching: Literal["sequential", "concatenated"] | None = None
    """Pass clean and adversarial images one after the other, or in one batch."""
    likelihood: Factor | None = None
    """Weight of the likelihood loss of dual norms."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that are not left out."""
        names = ("gamma", "beta", "kappa", "pairing", "clean_share", "batching")
        return _set_of(self, (*names, "likelihood"))


class GradientSpec(Spec):
    """The gradient of a step. A setting that is left out has the rule's own default."""

    name: str = "plain"
    """``advnorm list gradients``."""
    eps: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)] | None = None
    """Relative radius of the perturbed statistics (apart, apart_sam)."""
    rho: Factor | None = None
    """Radius of the perturbed weights (sam, apart_sam)."""
    samples: Samples | None = None
    """Samples of a batch in the second pass; by default all."""
    groups: Count | None = None
    """Groups of them that are normalized separately."""
    detached: bool | None = None
    """Whether the moments in the shift of the statistics are constants in the backward pass
    of the second pass, as in the authors' code (apart, apart_sam); by default not."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that are not left out."""
        return _set_of(self, ("eps", "rho", "samples", "groups", "detached"))


def _set_of(spec: Spec, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(spec, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


class OptimizerSpec(Spec):
    """The optimizer."""

    name: Literal["sgd", "adam", "rmsprop"] = "sgd"
    """RMSProp is that of Szegedy et al. (2016): decay 0.9, constant 1, and ``momentum``."""
    lr: Positive = 0.1
    """Learning rate."""
    schedule: ScheduleSpec = Constant()
    """Factor of the learning rate over the epochs."""
    momentum: Share = 0.9
    """Share of the last update that is kept, of SGD and RMSProp."""
    nesterov: bool = False
    """Nesterov momentum, of SGD."""
    weight_decay: Factor = 0.0
    """L2 penalty: this times the weights is added to their gradient."""
    decay_norms: bool = True
    """Whether weight decay includes biases and the parameters of norms."""
    scalar_lr_factor: Positive = 1.0
    """Factor of the learning rate for parameters of a single number (Fixup: 0.1)."""
    parameters: Literal["all", "norms"] = "all"
    """Train all parameters, or only those of norms (xie2020, 4.4)."""
    clip_norm: Positive | None = None
    """Clip the gradient to this Euclidean norm."""
    accumulate: Count = 1
    """Split each batch into N parts and add up their gradients, to save memory."""
    together: Count | None = None
    """Images that pass together on each rank, and are normalized by themselves: batches are
    split so, whatever the ranks. Running statistics move once a step, by the last part, as
    on one of several GPUs (xie2020)."""

    def pieces(self, batch: int, ranks: int) -> int:
        """Return the number of parts that a batch of all ranks passes in.

        >>> OptimizerSpec(together=32).pieces(4096, ranks=1)
        128
        >>> OptimizerSpec(together=32).pieces(4096, ranks=8)
        16
        """
        if self.together is None:
            return self.accumulate
        return max(1, batch // (self.together * ranks))

    @model_validator(mode="after")
    def _together_sets_accumulate(self) -> Self:
        if self.together is not None and self.accumulate > 1:
            raise ValueError(
                "optimizer.together says into how many parts a batch is split: leave out "
                "accumulate"
            )
        return self

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
