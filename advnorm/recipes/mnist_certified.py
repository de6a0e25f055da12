"""Certified training on MNIST, after sridhar2021 appendix B.3 and Table 6 (small CNN)."""

from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    ObjectiveSpec,
    OptimizerSpec,
    Piecewise,
    Ramp,
    Recipe,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.recipes.registry import RECIPES

_EVERY_FIFTH = ValidationSpec(every=5)
"""Of 30 epochs, the best of every fifth is kept."""


def _certified(epochs: int) -> Recipe:
    """Return the protocol of appendix B.3, its 200 epochs scaled to ``epochs``.

    Clean training in the first 1/20 of the epochs; then, until 3/10 of them, eps rises to
    0.4 and kappa falls to 0.5; the rate falls tenfold at 13/20 and at 19/20.
    """
    first, last = _ramp(epochs)
    return Recipe(
        data=DataSpec(name="mnist"),
        model=ModelSpec(name="cnn_small"),
        threat=ThreatSpec(eps=0.4, schedule=Ramp(first=first, last=last)),
        objective=ObjectiveSpec(
            name="ibp",
            kappa=1.0,
            kappa_schedule=Ramp(first=first, last=last, start=1, stop=0.5),
        ),
        optimizer=OptimizerSpec(
            name="adam",
            lr=5e-4,
            schedule=Piecewise(at=(epochs * 13 / 20, epochs * 19 / 20)),
        ),
        epochs=epochs,
        batch_size=100,
        validation=ValidationSpec(robust="ibp", eps=0.3, samples=None),
        evaluation=EvaluationSpec(
            conditions=("clean", "pgd-200", "ibp"),
            threat=EvaluationThreatSpec(eps=(0.3,)),
        ),
    )


def _ramp(epochs: int) -> tuple[float, float]:
    """Return the epochs between which eps rises."""
    return epochs / 20, epochs * 3 / 10


@RECIPES.register("mnist.ibp")
def ibp() -> Recipe:
    """Train sridhar2021's small CNN with batch norm by IBP, eps 0.4, tested at 0.3.

    Source: sridhar2021, appendix B.3 and Table 6 (SM-CNN, with BN).
    Command: ``advnorm train mnist.ibp --out runs/mnist-ibp``.
    Cost: not measured here at 200 epochs.
    Expected: 96.50% clean, 92.96% under PGD-200, 88.78% verified (its Table 6).
    """
    return _certified(200).replace(name="mnist.ibp")


@RECIPES.register("mnist.ibp_none")
def ibp_none() -> Recipe:
    """Train as ``mnist.ibp``, without normalization.

    Source: sridhar2021, appendix B.3 and Table 6 (SM-CNN, no BN).
    Command: ``advnorm train mnist.ibp_none --out runs/mnist-ibp-none``.
    Cost: not measured here at 200 epochs.
    Expected: 96.19% clean, 88.82% under PGD-200, 86.08% verified (its Table 6).
    """
    return _certified(200).replace(name="mnist.ibp_none", norm=NormSpec(name="none"))


def _crown(epochs: int) -> Recipe:
    """Return the same with CROWN-IBP without norm; beta falls to 0 while eps rises."""
    first, last = _ramp(epochs)
    return _certified(epochs).replace(
        norm=NormSpec(name="none"),
        objective=ObjectiveSpec(
            name="crown_ibp",
            beta=1,
            beta_schedule=Ramp(first=first, last=last, start=1, stop=0),
        ),
    )


@RECIPES.register("mnist.crown_ibp_none")
def crown_ibp_none() -> Recipe:
    """Train as ``mnist.ibp_none``, by CROWN-IBP.

    Source: sridhar2021, appendix B.3 and Table 6 (SM-CNN, CROWN-IBP); beta falls from 1 to
    0 as in Zhang et al. (2020), whose code the paper used.
    Command: ``advnorm train mnist.crown_ibp_none --out runs/mnist-crown-ibp-none``.
    Cost: not measured here at 200 epochs.
    Expected: 97.04% clean, 91.74% under PGD-200, 90.56% verified (its Table 6).
    """
    return _crown(200).replace(name="mnist.crown_ibp_none")


@RECIPES.register("mnist.crown_ibp_none_short")
def crown_ibp_none_short() -> Recipe:
    """Train as ``mnist.crown_ibp_none``, all schedules scaled to 10 epochs.

    Source: ours, after sridhar2021, appendix B.3.
    Command: ``advnorm train mnist.crown_ibp_none_short --out runs/mnist-crown-short``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _crown(10).replace(name="mnist.crown_ibp_none_short")


@RECIPES.register("mnist.ibp_short")
def ibp_short() -> Recipe:
    """Train as ``mnist.ibp``, all schedules scaled to 10 epochs.

    Source: ours, after sridhar2021, appendix B.3.
    Command: ``advnorm train mnist.ibp_short --out runs/mnist-ibp-short``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _certified(10).replace(name="mnist.ibp_short")


@RECIPES.register("mnist.ibp_none_short")
def ibp_none_short() -> Recipe:
    """Train as ``mnist.ibp_none``, all schedules scaled to 10 epochs.

    Source: ours, after sridhar2021, appendix B.3.
    Command: ``advnorm train mnist.ibp_none_short --out runs/mnist-ibp-none-short``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _certified(10).replace(name="mnist.ibp_none_short", norm=NormSpec(name="none"))


@RECIPES.register("mnist.ibp_none_30")
def ibp_none_30() -> Recipe:
    """Train as ``mnist.ibp_none``, all schedules scaled to 30 epochs.

    Source: ours, after sridhar2021, appendix B.3; the best of every fifth epoch is kept.
    Command: ``advnorm train mnist.ibp_none_30 --out runs/mnist-ibp-none-30``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _certified(30).replace(
        name="mnist.ibp_none_30", norm=NormSpec(name="none"), validation=_EVERY_FIFTH
    )


@RECIPES.register("mnist.ibp_30")
def ibp_30() -> Recipe:
    """Train as ``mnist.ibp``, all schedules scaled to 30 epochs.

    Source: ours, after sridhar2021, appendix B.3; the best of every fifth epoch is kept.
    Command: ``advnorm train mnist.ibp_30 --out runs/mnist-ibp-30``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _certified(30).replace(name="mnist.ibp_30", validation=_EVERY_FIFTH)


@RECIPES.register("mnist.crown_ibp_none_30")
def crown_ibp_none_30() -> Recipe:
    """Train as ``mnist.crown_ibp_none``, all schedules scaled to 30 epochs.

    Source: ours, after sridhar2021, appendix B.3; the best of every fifth epoch is kept.
    Command: ``advnorm train mnist.crown_ibp_none_30 --out runs/mnist-crown-ibp-none-30``.
    Cost: docs/results/certified-mnist.md.
    Expected: docs/results/certified-mnist.md.
    """
    return _crown(30).replace(name="mnist.crown_ibp_none_30", validation=_EVERY_FIFTH)
