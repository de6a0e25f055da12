"""The attacks by name: one record each, with all that other parts need to know of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Literal

from torch import Tensor

from advnorm.attacks.apgd import apgd, apgd_ce, apgd_dlr, apgd_t
from advnorm.attacks.cw import PUBLISHED, cw
from advnorm.attacks.ddn import ddn, ddn_nearest
from advnorm.attacks.fab import fab_nearest, fab_t
from advnorm.attacks.fmn import fmn, fmn_nearest
from advnorm.attacks.hop_skip_jump import count_queries, hop_skip_jump
from advnorm.attacks.losses import dlr_reason, targeted_dlr_reason
from advnorm.attacks.minimum_norm import NearestAdversarial
from advnorm.attacks.pdpgd import pdpgd, pdpgd_nearest
from advnorm.attacks.pgd import bim, fgsm, pgd
from advnorm.attacks.sigma_zero import sigma_zero, sigma_zero_nearest
from advnorm.attacks.square import square
from advnorm.registry import Registry
from advnorm.threat import Threat

_GRADIENT = 3
"""Passes of a step with a gradient: backward costs as much as two forward passes."""
_TARGETS = 9
"""Target classes of a targeted attack, where there are as many."""
_PROJECTED = ("linf", "l2", "l1")
_EVERY_NORM = ("linf", "l2", "l1", "l0")
_DEFAULT_STEPS = 10
"""Of an attack whose function has no default."""


def _two_descents(steps: int) -> int:
    """Count a descent, one towards the nearest class, its choice, and the shortening."""
    return _GRADIENT * (2 * steps + _TARGETS) + 12


def _always(classes: int) -> None:
    """Need no fallback, whatever the number of classes."""


@dataclass(frozen=True)
class AttackEntry:
    """What is known of an attack."""

    name: str
    function: Callable[..., Tensor]
    title: str
    """Its name in the literature, and the paper."""
    needs: Literal["gradients", "scores", "decisions"] = "gradients"
    """What it reads from the model."""
    norms: tuple[str, ...] = ("linf", "l2")
    """The threats that it searches."""
    image_shaped: bool = False
    """Whether it needs images of channels x height x width."""
    from_clean: bool = False
    """Whether it starts at the clean image, so that a restart would repeat it."""
    curve: bool = False
    """Whether N steps are the first N of a longer run, so that one run gives a curve."""
    fallback: Callable[[int], str | None] = _always
    """Number of classes -> why the attack does something else with so few, if it does."""
    passes: Callable[[int], int] = lambda steps: _GRADIENT * max(1, steps)
    """Steps -> forward passes for one sample, at most; a gradient counts as two more."""
    targets: int = 1
    """Target classes of one search, where there are as many; the passes are for all."""
    nearest: Callable[..., NearestAdversarial] | None = None
    """Of a minimum-norm attack: the same search whatever the radius, with distances."""

    @property
    def parameters(self) -> frozenset[str]:
        """The names of the function's arguments."""
        return frozenset(signature(self.function).parameters)

    @property
    def default_steps(self) -> int:
        """Steps where nobody gives a number; 0 for an attack without steps."""
        if "steps" not in self.parameters:
            return 0
        default = signature(self.function).parameters["steps"].default
        return default if isinstance(default, int) else _DEFAULT_STEPS

    def check(self, threats: Sequence[Threat], shape: Sequence[int] | None) -> None:
        """Refuse threats, and images of a shape (if known), that it cannot attack."""
        if self.image_shaped and shape is not None and len(shape) != 3:
            raise ValueError(
                f"{self.title.partition(':')[0]} needs images of channels x height x "
                f"width, not of shape {tuple(shape)}: choose attacks without it"
            )
        for threat in threats:
            if threat.name not in self.norms:
                raise ValueError(
                    f"{self.name} searches {' or '.join(self.norms)} balls only, not "
                    f"{threat.name}: use another threat, or another attack"
                )


ATTACKS: Registry[AttackEntry] = Registry("attack")
"""The attacks by name."""

for _entry in (
    AttackEntry(
        "fgsm",
        fgsm,
        "FGSM: fast gradient sign method (Goodfellow et al., 2015)",
        norms=_EVERY_NORM,
        from_clean=True,
    ),
    AttackEntry(
        "bim",
        bim,
        "BIM: basic iterative method, PGD from the clean image (Kurakin et al., 2017)",
        norms=_EVERY_NORM,
        from_clean=True,
    ),
    AttackEntry(
        "pgd",
        pgd,
        "PGD: projected gradient descent, from a random start (Madry et al., 2018)",
        norms=_EVERY_NORM,
        curve=True,
    ),
    AttackEntry(
        "apgd",
        apgd,
        "Auto-PGD: PGD with an adaptive step size (Croce & Hein, 2020)",
        norms=_PROJECTED,
    ),
    AttackEntry(
        "apgd_ce",
        apgd_ce,
        "Auto-PGD on the cross-entropy, of AutoAttack (Croce & Hein, 2020)",
        norms=_PROJECTED,
    ),
    AttackEntry(
        "apgd_dlr",
        apgd_dlr,
        "Auto-PGD on the difference of logits ratio, DLR (Croce & Hein, 2020)",
        norms=_PROJECTED,
        fallback=dlr_reason,
    ),
    AttackEntry(
        "apgd_t",
        apgd_t,
        "Auto-PGD on the targeted DLR loss, of AutoAttack (Croce & Hein, 2020)",
        norms=_PROJECTED,
        fallback=targeted_dlr_reason,
        passes=lambda steps: _GRADIENT * _TARGETS * steps,
        targets=_TARGETS,
    ),
    AttackEntry(
        "fab_t",
        fab_t,
        "FAB, targeted: minimum-norm boundary attack, of AutoAttack (Croce & Hein, 2020)",
        norms=_PROJECTED,
        from_clean=True,
        passes=lambda steps: _GRADIENT * _TARGETS * steps,
        targets=_TARGETS,
        nearest=fab_nearest,
    ),
    AttackEntry(
        "cw",
        cw,
        "Carlini & Wagner: minimum-norm L2 attack (Carlini & Wagner, 2017)",
        norms=("l2",),
        from_clean=True,
        passes=lambda steps: _GRADIENT * PUBLISHED.steps * PUBLISHED.constants,
    ),
    AttackEntry(
        "ddn",
        ddn,
        "DDN: decoupled direction and norm, minimum-norm L2 attack (Rony et al., 2019)",
        norms=("l2",),
        from_clean=True,
        passes=_two_descents,
        nearest=ddn_nearest,
    ),
    AttackEntry(
        "fmn",
        fmn,
        "FMN: fast minimum-norm attack, in any norm (Pintor et al., 2021)",
        norms=_EVERY_NORM,
        from_clean=True,
        passes=_two_descents,
        nearest=fmn_nearest,
    ),
    AttackEntry(
        "sigma_zero",
        sigma_zero,
        "Sigma-zero: minimum-norm L0 attack (Cinà et al., 2024)",
        norms=("l0",),
        from_clean=True,
        passes=_two_descents,
        nearest=sigma_zero_nearest,
    ),
    AttackEntry(
        "pdpgd",
        pdpgd,
        "PDPGD: primal-dual proximal, minimum-norm L1 attack (Matyasko & Chau, 2021)",
        norms=("l1",),
        from_clean=True,
        passes=_two_descents,
        nearest=pdpgd_nearest,
    ),
    AttackEntry(
        "square",
        square,
        "Square Attack: random search on scores (Andriushchenko et al., 2020)",
        norms=_PROJECTED,
        needs="scores",
        image_shaped=True,
        passes=lambda steps: steps,
    ),
    AttackEntry(
        "hop_skip_jump",
        hop_skip_jump,
        "HopSkipJump: boundary attack on decisions alone (Chen et al., 2020)",
        needs="decisions",
        passes=count_queries,
    ),
):
    ATTACKS.register(_entry.name)(_entry)
