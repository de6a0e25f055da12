"""The sections that measure a model: while it trains, and afterwards."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from advnorm.recipe.values import (
    Count,
    Factor,
    PixelDistance,
    Positive,
    Samples,
    Spec,
    Unit,
    Whole,
    layer_names,
    number,
    sequence,
)


class ValidationSpec(Spec):
    """The held-out accuracies that select the best checkpoint."""

    every: Annotated[Count, Unit("epochs")] = 1
    """Epochs between two validations; the last epoch always has one."""
    samples: Samples | None = 1000
    """Validate on the first N held-out samples; ``null`` is all of them."""
    steps: Count = 10
    """PGD steps of the robust accuracy."""
    robust: Literal["pgd", "ibp"] = "pgd"
    """The robust accuracy: under PGD, or certified by interval bounds."""
    eps: PixelDistance | None = None
    """Radius of the robust accuracy; by default that of ``threat``."""
    select_by: Literal["clean+robust", "clean", "robust"] = "clean+robust"
    """The best checkpoint maximizes this held-out accuracy."""


class MonitorSpec(Spec):
    """Measurements during training. They do not change the training.

    sridhar2021 Fig. 1 and sitawarin2021 Fig. 4: docs/how-to/diagnose.md.
    """

    questions: tuple[
        Literal["gradient_norm", "moments", "wasserstein", "hessian"], ...
    ] = ()
    """What to measure; nothing by default."""
    every: Annotated[Count, Unit("batches")] = 10
    """Measure at every N-th batch."""
    hessian_steps: Count = 20
    """Largest number of Hessian-vector products for one eigenvalue."""
    hessian_samples: Samples | None = None
    """Use the first N samples of the batch; by default all."""


class EvaluationThreatSpec(Spec):
    """The ball and the radii of an evaluation, where they differ from ``threat``."""

    norm: Literal["linf", "l2", "l1", "l0"] | None = None
    """By default the norm of ``threat``; another norm needs its own ``eps``."""
    eps: Annotated[tuple[Factor, ...], BeforeValidator(sequence), Unit("pixel values")] = ()
    """A radius, or a list of them. By default half the radius of ``threat``, and all of
    it."""


class AdaptSpec(Spec):
    """What attacks pass in place of the model; verdicts are the model's own.

    See docs/how-to/adaptive.md.
    """

    layers: Annotated[dict[str, str], BeforeValidator(layer_names)] = {}
    """Layer, by its name or that of its class -> ``advnorm list surrogates``: the backward
    pass of the layer is that of the surrogate (BPDA)."""
    draws: Count = 1
    """Passes of a randomized model that a search averages (EOT), and draws of a verdict."""
    noise: Annotated[Factor, Unit("pixel values")] = 0.0
    """Standard deviation of an offset of the images in each of the ``draws``."""
    loss: Literal["margin", "dlr"] | None = None
    """What fgsm, bim, pgd and apgd maximize; by default the cross-entropy."""


class EvaluationSpec(Spec):
    """What ``advnorm evaluate`` does."""

    conditions: tuple[str, ...] = ("clean", "noise-0.25", "fgsm", "bim-10", "pgd-50")
    """``clean``, ``noise-SIGMA``, ``NAME-STEPSxRESTARTS``: docs/how-to/evaluation.md."""
    threat: EvaluationThreatSpec = EvaluationThreatSpec()
    """The ball and the radii, where they differ from those of training."""
    certificate: Literal["none", "ibp", "crown-ibp", "crown"] = "none"
    """A certificate that is computed before attacks; certified samples are not attacked."""
    radii: bool = False
    """Bracket the robust radius of each sample too: the condition ``radii``."""
    step_ratio: Positive = 2.5
    """Step size of an attack: ``step_ratio * eps / steps``."""
    data: str | None = None
    """The test samples of another data set, such as ``cifar10-c:fog:3``; by default those
    of ``data``."""
    samples: Samples | None = None
    """Evaluate the first N test samples; by default all."""
    batch_size: Samples = 250
    """Samples that are attacked together. Verdicts do not depend on it."""
    weights: Literal["best", "last"] = "best"
    """The checkpoint with the best validation accuracy, or the last one."""
    search_precision: Literal["float32", "bfloat16"] = "float32"
    """Of the passes of attacks: that of the model, or bfloat16, which is faster. Every
    success is confirmed in that of the model."""
    adapt: AdaptSpec = AdaptSpec()
    """An adaptive search, for a model that hides its gradients."""
    statistics: Literal["running", "batch", "median"] = "running"
    """Whose statistics batch norms take: the running ones, or those of each test batch,
    around its mean or its median. Then ``fgsm``, ``bim`` and ``pgd`` attack whole batches,
    all of them full, and verdicts depend on the batch."""
    malicious: Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)] = 0.0
    """With statistics of the batch: share of each batch that an attack moves to make the
    other rows wrong. Those alone get verdicts."""
    attacked: Annotated[float, BeforeValidator(number), Field(gt=0, le=1)] = 1.0
    """With statistics of the batch: share of each batch that is attacked at a time."""
    branch: Literal["adversarial", "clean", "worst"] = "adversarial"
    """The branch of a mixture norm that is evaluated and attacked. With ``worst``, a sample
    is robust only if it is robust on both."""
    examples: Annotated[Whole, Field(ge=0), Unit("images")] = 8
    """How many adversarial images to keep for the report."""


class PerturbationSpec(Spec):
    """How ``advnorm perturb`` changes batch-norm statistics (apart2022 4.4, 4.5).

    Samples, weights, branch and batch size are those of ``evaluation``.
    """

    radii: tuple[Annotated[float, BeforeValidator(number), Field(ge=0, lt=1)], ...] = (
        0.0,
        0.1,
        0.2,
        0.3,
        0.4,
    )
    """Largest change of a statistic, relative to its size."""
    directions: tuple[Literal["uniform", "sign", "adversarial"], ...] = ("sign",)
    """Random numbers, random signs, or the gradient of the loss."""
    draws: Count = 1
    """Random directions of each kind, each with a result of its own."""
    parts: tuple[Literal["mean", "deviation", "both"], ...] = ("mean", "deviation")
    """The statistics that are perturbed."""
    statistics: Literal["running", "batch"] = "running"
    """Perturb the running statistics, or those of each batch."""
    groups: Count = 1
    """Groups of a batch that are normalized separately, with batch statistics."""
    split: Literal["test", "train"] = "test"
    """The samples whose accuracy is measured."""
    attack_samples: Samples = 128
    """Training samples whose loss an adversarial direction maximizes."""
