"""A small MNIST problem on which every norm meets every objective in a minute."""

from advnorm.recipe import Recipe, override
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
    return override(
        Recipe(name="mnist.norms"),
        [
            "data.name=mnist",
            "data.train=4000",
            "data.test=1000",
            "model.name=cnn_small",
            "threat.eps=0.3",
            "threat.schedule={kind: ramp, last: 2}",
            "attack.steps=7",
            "attack.step_size=0.1",
            "optimizer.name=adam",
            "optimizer.lr=2e-3",
            "optimizer.schedule={kind: cyclic, peak: 2, end: 5}",
            "epochs=5",
            "batch_size=128",
            "validation={samples: 300, steps: 10}",
            "evaluation={conditions: [clean, pgd-40], threat: {eps: [0.3]}, branch: worst}",
        ],
    )
