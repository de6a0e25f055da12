"""MNIST problems on which every norm meets every objective in a minute or two."""

from advnorm.recipe import (
    AttackSpec,
    Cyclic,
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    OptimizerSpec,
    Ramp,
    Recipe,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.recipes.registry import RECIPES


@RECIPES.register("mnist.norms")
def norms() -> Recipe:
    """Train the small CNN on 4,000 MNIST images, eps 0.3: the base of the norm grid.

    Source: ours; the model is sridhar2021's small CNN, the radius that of its Table 6.
    Command: ``advnorm train mnist.norms --out runs/mnist-norms``, with ``--set norm.name``
    and ``--set objective.name``; all of them: ``python benchmarks/norm_grid.py``.
    Cost: about a minute on one core.
    Expected: docs/results/norm-grid.md.
    """
    return Recipe(
        name="mnist.norms",
        data=DataSpec(name="mnist", train=4000, test=1000),
        model=ModelSpec(name="cnn_small"),
        threat=ThreatSpec(eps=0.3, schedule=Ramp(last=2)),
        attack=AttackSpec(steps=7, step_size=0.1),
        optimizer=OptimizerSpec(name="adam", lr=2e-3, schedule=Cyclic(peak=2, end=5)),
        epochs=5,
        batch_size=128,
        validation=ValidationSpec(samples=300, steps=10),
        evaluation=EvaluationSpec(
            conditions=("clean", "pgd-40"),
            threat=EvaluationThreatSpec(eps=(0.3,)),
            branch="worst",
        ),
    )


@RECIPES.register("mnist.study")
def study() -> Recipe:
    """Train a narrow small CNN on all MNIST images, eps 0.2, in three epochs.

    Source: ours; the model is sridhar2021's small CNN at half its width.
    Command: ``advnorm train mnist.study --out runs/mnist-study``; several norms:
    ``advnorm study mnist.study --over norm.name=batch,group,none --seeds 5``.
    Cost: not measured on an idle machine.
    Expected: 98.0% clean and 89.8% under the suite ``strong`` with batch norm, the mean of
    three seeds. All norms: docs/results/norms-mnist.md.
    """
    return norms().replace(
        name="mnist.study",
        data=DataSpec(train=None, test=1000),
        model=ModelSpec(options={"width": 8}),
        norm=NormSpec(where=(0, 1)),  # the convolutions: instance norm has no other place
        threat=ThreatSpec(eps=0.2, schedule=Ramp(last=1)),
        attack=AttackSpec(steps=5, step_size=0.05, steps_schedule=Ramp(start=0.2, last=1)),
        optimizer=OptimizerSpec(lr=4e-3, schedule=Cyclic(peak=1, end=3)),
        epochs=3,
        batch_size=256,
        validation=ValidationSpec(samples=1000),
        evaluation=EvaluationSpec(
            conditions=("clean", "strong"),
            threat=EvaluationThreatSpec(eps=(0.2,)),
            branch="adversarial",
        ),
    )
