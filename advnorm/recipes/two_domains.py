"""CIFAR-10 recipes that train on clean and adversarial images together."""

from advnorm.recipe import (
    AttackSpec,
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    NormSpec,
    ObjectiveSpec,
    Recipe,
    ThreatSpec,
    ValidationSpec,
)
from advnorm.recipes.cifar10 import pgd
from advnorm.recipes.registry import RECIPES


def _sitawarin() -> Recipe:
    """Return the protocol of sitawarin2021, appendix B: eps 16/255, step size 4/255.

    Crops, flips, scaling and brightness; all of the held-out tenth chooses the weights.
    """
    return pgd().replace(
        threat=ThreatSpec(eps=16 / 255),
        attack=AttackSpec(step_size=4 / 255),
        evaluation=EvaluationSpec(threat=EvaluationThreatSpec(eps=(8 / 255, 16 / 255))),
        data=DataSpec(augment="crop_flip_jitter"),
        validation=ValidationSpec(samples=None),
    )


@RECIPES.register("cifar10.trades")
def trades() -> Recipe:
    """Train with TRADES on concatenated batches, eps 16/255, batch norm.

    Source: sitawarin2021, appendix B and Table 1 (TRADES-Cat, beta 6).
    Command: ``advnorm train cifar10.trades --out runs/cifar10-trades``.
    Cost: the paper reports about 8 hours on its servers; not measured here.
    Expected: 73.82% clean, 33.16% under PGD-10 (its Table 1); not measured here.
    """
    objective = ObjectiveSpec(name="trades", beta=6)
    return _sitawarin().replace(name="cifar10.trades", objective=objective)


@RECIPES.register("cifar10.mixed")
def mixed() -> Recipe:
    """Train with MAT on concatenated batches, eps 16/255, batch norm.

    Source: sitawarin2021, appendix B and Table 1 (MAT-Cat, gamma 0.5).
    Command: ``advnorm train cifar10.mixed --out runs/cifar10-mixed``.
    Cost: the paper reports about 7 hours on its servers; not measured here.
    Expected: 93.95% clean, 33.11% under PGD-10, false robustness (3.70% under AutoAttack,
    its Table 1); not measured here.
    """
    objective = ObjectiveSpec(name="mixed", gamma=0.5)
    return _sitawarin().replace(name="cifar10.mixed", objective=objective)


@RECIPES.register("cifar10.mixed_kl_dual")
def mixed_kl_dual() -> Recipe:
    """Train with MAT + KL and dual batch norm, eps 16/255: sitawarin2021's best scheme.

    Source: sitawarin2021, Table 4 (MAT-Cat + DBN + KL: gamma 0.5, beta 1). The weight of
    the likelihood loss is not stated there: 1 here, of its mean over positions and
    channels. The paper's words are a sum over pixels (``norm.options={likelihood: sum}``),
    which is thousands of times the cross-entropy in this network.
    Command: ``advnorm train cifar10.mixed_kl_dual --out runs/cifar10-dual``.
    Cost: not stated there; not measured here.
    Expected: 76.39% clean, 31.39% under PGD-10 (its Table 4); not measured here.
    """
    return _sitawarin().replace(
        name="cifar10.mixed_kl_dual",
        norm=NormSpec(name="dual", options={"likelihood": "mean"}),
        objective=ObjectiveSpec(name="mixed_kl", gamma=0.5, beta=1),
    )


@RECIPES.register("cifar10.mixture_clean")
def mixture_clean() -> Recipe:
    """Train with MAT and mixture batch norm, eps 8/255, for clean accuracy.

    The model is tested, and its epoch chosen, on the clean branch. This is the idea of
    AdvProp (Xie et al., 2020) in the setting of ``cifar10.pgd``, and not AdvProp's own,
    which trains EfficientNets on ImageNet against weaker attacks.
    Source: xie2020, section 4.2 (MBN, 100% adv + 100% clean).
    Command: ``advnorm train cifar10.mixture_clean --out runs/cifar10-mixture``.
    Cost: not measured here.
    Expected: on ImageNet, xie2020's Table 1 has clean accuracy 0.4 points above clean
    training; not measured on CIFAR-10.
    """
    return pgd().replace(
        name="cifar10.mixture_clean",
        norm=NormSpec(name="mixture"),
        objective=ObjectiveSpec(name="mixed", gamma=0.5),
        evaluation=EvaluationSpec(branch="clean"),
        validation=ValidationSpec(select_by="clean"),
    )
