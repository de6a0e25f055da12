"""A small MNIST problem on which every norm meets every objective in a minute."""

from advnorm.recipe import (
    AttackSpec,
    Cyclic,
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
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
