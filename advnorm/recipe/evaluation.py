"""How it is judged: while it trains, and afterwards."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from advnorm.recipe.values import Count, Factor, Positive, Spec, Whole, number


class Validation(Spec):
    """The held-out accuracies that choose the best checkpoint."""

    every: Count = 1
    """Epochs between two validations; the last epoch always has one."""
    samples: Count | None = 1000
    steps: Count = 10
    """PGD steps of the robust accuracy."""
    robust: Literal["pgd", "ibp"] = "pgd"
    """Whether robust is accuracy under PGD, or verified by interval bounds."""
    eps: Positive | None = None
    """Radius of the robust accuracy; by default the threat's own."""
    prefer: Literal["clean+robust", "clean", "robust"] = "clean+robust"
    """Which held-out accuracy the best checkpoint maximizes."""


class Watch(Spec):
    """What is looked at while it trains; nothing of it changes the training.

    sridhar2021 Fig. 1 and sitawarin2021 Fig. 4: docs/diagnose.md.
    """

    questions: tuple[
        Literal["gradient_norm", "moments", "wasserstein", "hessian"], ...
    ] = ()
    every: Count = 10
    """Look at every so many-th batch."""
    hessian_steps: Count = 20
    """Most Hessian-vector products for one eigenvalue."""
    hessian_samples: Count | None = None
    """The first so many samples of the batch; by default all."""


class Evaluation(Spec):
    """What ``advnorm evaluate`` runs."""

    attacks: tuple[str, ...] = ("clean", "noise-0.25", "fgsm", "bim-10", "pgd-50")
    """``name-stepsxrestarts+option``; ``noise-sigma``; ``clean``: docs/evaluation.md."""
    norm: Literal["linf", "l2"] | None = None
    """By default the recipe's own; another norm needs its own ``eps``."""
    eps: tuple[Factor, ...] = ()
    """Radii of the accuracy curve; by default half the recipe's own and its own."""
    certify: Literal["none", "ibp", "crown-ibp", "crown"] = "none"
    """A certificate that is tried before attacks: what it covers is not attacked."""
    step_ratio: Positive = 2.5
    """Length of all steps together over eps: step size = ratio * eps / steps."""
    data: str | None = None
    """Another set's test samples, such as ``cifar10-c:fog:3``; by default the run's."""
    samples: Count | None = None
    """The first so many test samples; by default all."""
    batch_size: Count = 250
    weights: Literal["best", "last"] = "best"
    branch: Literal["adversarial", "clean", "worst"] = "adversarial"
    """Which branch of a mixture norm answers, and is attacked; ``worst`` is both."""
    examples: Annotated[Whole, Field(ge=0)] = 8
    """Images kept for the report."""


class Perturbation(Spec):
    """What ``advnorm perturb`` does to the statistics of batch norms (apart2022 4.4, 4.5).

    Samples, weights, branch and batch size are those of ``evaluation``.
    """

    radii: tuple[Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)], ...] = (
        0.0,
        0.1,
        0.2,
        0.3,
        0.4,
    )
    """Relative to each statistic."""
    directions: tuple[Literal["uniform", "sign", "adversarial"], ...] = ("sign",)
    parts: tuple[Literal["mean", "deviation", "both"], ...] = ("mean", "deviation")
    statistics: Literal["running", "batch"] = "running"
    groups: Count = 1
    """Of a batch, normalized each by itself; for batch statistics."""
    split: Literal["test", "train"] = "test"
    attacked: Count = 128
    """Training samples on which an adversarial direction climbs the loss."""
