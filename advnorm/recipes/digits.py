"""Recipes on scikit-learn's 1,797 real digits, 8x8: seconds on a laptop."""

from advnorm.recipe import Recipe, override
from advnorm.recipes.registry import RECIPES


@RECIPES.register("digits.pgd")
def pgd() -> Recipe:
    """Train a small network against PGD-5 at eps 0.15, with batch norm.

    Source: ours, after Madry et al. (2018), scaled to 8x8 images.
    Command: ``advnorm train digits.pgd --out runs/digits-pgd``.
    """
    return override(
        Recipe(name="digits.pgd"),
        [
            "data.name=digits",
            "model.name=mlp",
            "model.options.depth=2",
            "model.options.width=128",
            "threat.eps=0.15",
            "attack.steps=5",
            "optimizer.rate=0.05",
            "optimizer.schedule={kind: cosine, end: 30}",
            "epochs=30",
            "batch_size=64",
            "evaluation.attacks=[clean, noise-0.25, fgsm, bim-10, pgd-50x2]",
            "evaluation.eps=[0.05, 0.1, 0.15, 0.2]",
        ],
    )


@RECIPES.register("digits.pgd_none")
def pgd_none() -> Recipe:
    """Train as ``pgd``, without normalization.

    Command: ``advnorm train digits.pgd_none --out runs/digits-pgd-none``.
    """
    return override(pgd(), ["name=digits.pgd_none", "norm.name=none"])


@RECIPES.register("digits.standard")
def standard() -> Recipe:
    """Train as ``pgd``, on clean images only, with batch norm.

    Command: ``advnorm train digits.standard --out runs/digits-standard``.
    """
    changes = ["name=digits.standard", "objective.name=standard", "validation.prefer=clean"]
    return override(pgd(), changes)


@RECIPES.register("digits.standard_none")
def standard_none() -> Recipe:
    """Train on clean images only, without normalization.

    Command: ``advnorm train digits.standard_none --out runs/digits-standard-none``.
    """
    return override(standard(), ["name=digits.standard_none", "norm.name=none"])
