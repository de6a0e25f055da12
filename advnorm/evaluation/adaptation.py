"""An adaptive search: what it passes in place of the model. Verdicts are the plain model's.

A defense has to be attacked by someone who knows it (Tramèr et al., 2020,
https://arxiv.org/abs/2002.08347). An :class:`Adaptation` says what is known; it is bound to
a model once, where everything that does not fit is refused.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from advnorm.attacks import AttackGoal, Gain, LogitsFn, dlr, hard_labels
from advnorm.draws import Draws
from advnorm.evaluation.checks.significance import rounding_of, share_differing
from advnorm.evaluation.engine import logits_of
from advnorm.evaluation.samples import AnyModel, as_module
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.records import Setting
from advnorm.registry import unknown
from advnorm.surrogates import (
    LayerKey,
    Slot,
    Surrogate,
    expected_logits,
    find_slots,
    substituted,
)

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(logits, labels)`` -> one number per sample, to be maximized."""


def margin(labels: Tensor) -> Gain:
    r"""Return the plain margin, :math:`\max_{i \ne y} z_i - z_y`: never saturated."""

    def gain(logits: Tensor) -> Tensor:
        wrong = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
        return wrong - logits.gather(1, labels[:, None]).squeeze(1)

    return gain


LOSSES: dict[str, Callable[[Tensor], Gain]] = {"margin": margin, "dlr": dlr}
"""Losses by name, beside the attacks' own."""
_PROBES = 8
"""Passes that must agree before a model counts as not randomized."""
_FEW = 16


@dataclass(frozen=True)
class Adaptation:
    """What an adaptive search knows of a defense.

    >>> Adaptation(layers={"quantize": "identity"}, draws=20).draws
    20
    """

    layers: Mapping[LayerKey, Surrogate | str] = field(default_factory=dict)
    """Layer, by name or class -> its surrogate, whose backward pass replaces its own."""
    draws: int = 1
    """Passes of a randomized model that a search averages, and draws of a verdict."""
    noise: float = 0.0
    """Standard deviation of offsets of the input, one for each draw, in pixel values."""
    model: AnyModel | None = None
    """Another model of the same classes, which is searched instead."""
    loss: Loss | str | None = None
    """What attacks that take a goal maximize (fgsm, bim, pgd, apgd), or its name."""

    def __post_init__(self) -> None:
        whole = isinstance(self.draws, int) and not isinstance(self.draws, bool)
        if not (whole and self.draws >= 1):
            raise ValueError(f"adapt: draws is a whole number from 1, not {self.draws}")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(
                f"adapt: noise is a deviation in pixel values, not {self.noise}"
            )
        if self.noise and self.draws < 2:
            raise ValueError(
                "adapt: noise is averaged over draws: set draws too, such as 20"
            )
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            raise unknown("loss", self.loss, list(LOSSES))

    def __bool__(self) -> bool:
        return self != Adaptation()

    @property
    def goal(self) -> AttackGoal | None:
        """The goal of attacks that take one; ``None`` leaves them theirs."""
        if self.loss is None:
            return None
        if isinstance(self.loss, str):
            return _goal_of(LOSSES[self.loss])
        return _goal_of(partial(_own_gain, self.loss))


def _goal_of(make: Callable[[Tensor], Gain]) -> AttackGoal:
    """Return a goal that depends on the labels alone."""

    def goal(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Gain:
        return make(hard_labels(labels))

    return goal


def _own_gain(loss: Loss, labels: Tensor) -> Gain:
    return lambda logits: _checked(loss(logits, labels), labels)


Adapt: TypeAlias = Adaptation | Mapping[LayerKey, Surrogate | str]
"""A whole adaptation, or the surrogates of layers alone."""


def as_adaptation(adapt: Adapt | None) -> Adaptation:
    """Return an adaptation of what a caller gave."""
    if adapt is None:
        return Adaptation()
    if isinstance(adapt, Adaptation):
        return adapt
    if not isinstance(adapt, Mapping):
        raise ValueError(
            f"adapt is a {type(adapt).__name__}: give {{layer: surrogate}}, or an "
            "advnorm.evaluation.Adaptation"
        )
    return Adaptation(layers=adapt)


@dataclass(frozen=True)
class BoundAdaptation:
    """An adaptation of one model: its layers are known, and everything fits."""

    model: nn.Module
    """The one that gives the verdicts."""
    searched: nn.Module
    """The one that searches pass: the same, or a surrogate."""
    slots: tuple[Slot, ...]
    draws: int
    """Of the search."""
    verdict_draws: int
    """Of a verdict; 1 for a model that is not randomized."""
    noise: float
    goal: AttackGoal | None
    settings: Mapping[str, Setting]
    notes: tuple[str, ...] = ()

    @property
    def changes_search(self) -> bool:
        """Whether searches pass something else than the plain model."""
        return bool(self.slots) or self.draws > 1 or self.searched is not self.model

    @property
    def changes_verdicts(self) -> bool:
        """Whether a verdict needs more than a pass: the model is randomized."""
        return self.verdict_draws > 1

    def search_fn(
        self, seed: int = 0, counting: Callable[[LogitsFn], LogitsFn] = lambda fn: fn
    ) -> LogitsFn:
        """Return what searches call; ``counting`` counts each pass of it."""
        plain = counting(logits_of(self.searched))

        def once(images: Tensor) -> Tensor:
            with substituted(self.slots):
                return plain(images)

        if self.draws == 1:
            return once
        return expected_logits(once, self.draws, noise=self.noise, seed=seed)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Put a surrogate model in evaluation mode, with frozen parameters."""
        with ExitStack() as scopes:
            if self.searched is not self.model:
                scopes.enter_context(eval_mode(self.searched))
                scopes.enter_context(frozen_parameters(self.searched))
            yield


def bind(adapt: Adapt | None, model: nn.Module, images: Tensor) -> BoundAdaptation | None:
    """Check an adaptation with a few images; ``None`` where nothing is adapted."""
    wanted = as_adaptation(adapt)
    if not wanted:
        return None
    searched = model if wanted.model is None else as_module(wanted.model)
    few, notes = images[:_FEW].detach().clone(), []
    slots = tuple(find_slots(searched, wanted.layers))
    with eval_mode(model), eval_mode(searched), torch.random.fork_rng(_devices(few)):
        random = wanted.draws > 1 and is_randomized(model, few)
        if searched is not model:
            _check_classes(searched, model, few)
        if slots or searched is not model:
            _check_slots(searched, slots, few)
    if wanted.draws > 1 and not random and not wanted.noise:
        notes.append(
            f"adapt: draws={wanted.draws}, but the model is not randomized ({_PROBES} "
            "passes agree): each pass is made once"
        )
    draws = wanted.draws if random or wanted.noise else 1
    return BoundAdaptation(
        model,
        searched,
        slots,
        draws,
        wanted.draws if random else 1,
        wanted.noise,
        wanted.goal,
        _settings(wanted, slots, draws),
        tuple(notes),
    )


def adapted(model: AnyModel, adapt: Adapt, images: Tensor, *, seed: int = 0) -> LogitsFn:
    """Return what attacks call in place of ``model``, as an adaptive evaluation does.

    >>> from advnorm import Linf, attacks
    >>> class Round(nn.Module):
    ...     def forward(self, x):
    ...         return (7 * x).round() / 7
    >>> model = nn.Sequential(Round(), nn.Flatten(), nn.Linear(4, 2))
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> logits_fn = adapted(model, {"0": "identity"}, images)
    >>> attacks.pgd(logits_fn, images, labels, Linf(0.1), steps=5, step_size=0.05).shape
    torch.Size([8, 1, 2, 2])

    Args:
        model: A module, in the mode in which it is attacked.
        adapt: ``{layer: surrogate}``, or an :class:`Adaptation`. Its ``loss`` is
            not used: an attack takes a ``goal``.
        images: A few images, with which everything is checked.
        seed: Decides the offsets of ``noise``.
    """
    bound = bind(adapt, as_module(model), images)
    return logits_of(as_module(model)) if bound is None else bound.search_fn(seed)


def is_randomized(model: nn.Module, images: Tensor) -> bool:
    """Tell whether two passes over the same images answer differently."""
    logits_fn, rounding = logits_of(model), rounding_of(model)
    with torch.no_grad():
        first = logits_fn(images.clone())
        again = (logits_fn(images.clone()) for _ in range(_PROBES - 1))
        return any(share_differing(first, other, rounding) > 0 for other in again)


def _check_classes(searched: nn.Module, model: nn.Module, images: Tensor) -> None:
    """Refuse a surrogate model of other classes."""
    with torch.no_grad():
        own, other = (logits_of(each)(images).shape for each in (model, searched))
    if own != other:
        raise ValueError(
            f"the surrogate model returns shape {tuple(other)}, the model {tuple(own)}: "
            "give a surrogate of the same classes"
        )


def _check_slots(searched: nn.Module, slots: tuple[Slot, ...], images: Tensor) -> None:
    """Refuse surrogates of another shape, of layers that are not run, without effect."""
    x = images.clone().requires_grad_()
    with torch.enable_grad(), frozen_parameters(searched), substituted(slots) as called:
        logits = logits_of(searched)(x)
    for slot in slots:
        if slot.name not in called:
            raise ValueError(
                f"layer {slot.name!r} is not called in a pass: name the one that is"
            )
    names = ", ".join(repr(slot.name) for slot in slots) or "the surrogate model"
    gradient = None
    if logits.requires_grad:
        (gradient,) = torch.autograd.grad(logits.sum(), x, allow_unused=True)
    if gradient is None:
        raise ValueError(
            f"no gradient reaches the images past {names}: a surrogate is not "
            "differentiable, or another layer cuts the graph and needs one too"
        )


def _settings(
    wanted: Adaptation, slots: tuple[Slot, ...], draws: int
) -> dict[str, Setting]:
    """Return what records say of an adaptation."""
    settings: dict[str, Setting] = {
        f"adapt.layers.{slot.name}": slot.label for slot in slots
    }
    if draws > 1:
        settings["adapt.draws"] = draws
    if wanted.noise:
        settings["adapt.noise"] = wanted.noise
    if wanted.model is not None:
        settings["adapt.model"] = type(wanted.model).__name__
    if wanted.loss is not None:
        named = isinstance(wanted.loss, str)
        settings["adapt.loss"] = (
            str(wanted.loss) if named else getattr(wanted.loss, "__name__", "given")
        )
    return settings


def _checked(gains: Tensor, labels: Tensor) -> Tensor:
    if gains.shape != labels.shape:
        raise ValueError(
            f"the loss returns shape {tuple(gains.shape)}: return one number per sample, "
            f"{tuple(labels.shape)} (reduction='none')"
        )
    return gains


def _devices(like: Tensor) -> list[torch.device]:
    return [like.device] if like.device.type == "cuda" else []
