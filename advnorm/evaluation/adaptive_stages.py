"""The stages of adaptive conditions, and those of randomized models."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advnorm.attacks import classify
from advnorm.draws import Draws
from advnorm.evaluation.adaptation import BoundAdaptation
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.stages import (
    NOT_BROKEN,
    AttackSearch,
    BatchVerdicts,
    BoundAttack,
    StageInput,
    predict,
)
from advnorm.records import ADAPTED
from advnorm.surrogates import drawn_logits, seeded


@dataclass(frozen=True)
class RandomizedSearch:
    """Attack a randomized model; verdicts are frequencies over draws.

    Each attack leaves a candidate. The passes that choose between them are not those that
    give the verdict: the candidate that fooled most of ``draws`` passes is passed ``draws``
    more times, a sample at a time, with random numbers of (seed, sample, draw). The first
    of these passes is the verdict, so that an accuracy counts what one pass answers.
    """

    search: AttackSearch | None
    """``None`` for images that nobody attacks."""
    draws: int

    def run(self, batch: StageInput, verdicts: BatchVerdicts) -> BatchVerdicts:
        """Search, choose, and draw."""
        images, by = batch.clean.clone(), torch.full_like(verdicts.broken_by, NOT_BROKEN)
        if self.search is not None and self.search.threat.eps:
            self._attack(batch, self.search, images, by)
        elif verdicts.images is not batch.clean:
            images = verdicts.images.clone()  # changed without an adversary
        right, predictions = self._draw(batch, images)
        robust = right[:, 0]
        return verdicts._replace(
            images=images,
            predictions=predictions,
            robust=robust,
            broken_by=torch.where(robust, NOT_BROKEN, by),
            draws=right,
        )

    def _attack(
        self, batch: StageInput, search: AttackSearch, images: Tensor, by: Tensor
    ) -> None:
        """Keep in ``images`` the candidates that fool the most passes."""
        shares = self._share_right(batch, images, batch.labels, "clean", 0)
        for number, attack, stream in search.restarts():
            rows = (shares > 0).nonzero().squeeze(1)
            if not len(rows):
                return
            clean, labels = batch.clean[rows], batch.labels[rows]
            draws = batch.draws[rows].stream(*stream)
            with seeded(_key(batch.draws, *stream), clean):
                x = attack(batch.search_fn, clean, labels, draws=draws)
            share = self._share_right(batch, x, labels, *stream)
            better = (share < shares[rows]) & search.threat.contains(x, clean)
            images[rows[better]] = x[better]
            by[rows[better]] = number
            shares[rows[better]] = share[better]

    def _share_right(
        self, batch: StageInput, x: Tensor, labels: Tensor, *stream: str | int
    ) -> Tensor:
        """Return the share of passes that are right; they choose, and give no verdict."""
        with seeded(_key(batch.draws, "choose", *stream), x):
            passes = [
                predict(batch.logits_fn, x, labels) == labels for _ in range(self.draws)
            ]
        return torch.stack(passes).double().mean(0)

    def _draw(self, batch: StageInput, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return which draws are right, ``(batch, draws)``, and what the first predicts."""
        keys = batch.draws.stream("verdict")
        logits = drawn_logits(batch.logits_fn, images, keys, self.draws)
        labels = batch.labels.repeat_interleave(self.draws)
        guess = classify(logits.flatten(0, 1), labels).view(-1, self.draws)
        return guess == batch.labels[:, None], guess[:, 0]


def adapt_conditions(
    conditions: Sequence[Condition], bound: BoundAdaptation | None
) -> list[Condition]:
    """Return the conditions as an adaptive search runs them; what it cannot is refused."""
    if bound is None:
        return list(conditions)
    if bound.goal is not None and not any(
        "goal" in name.entry.parameters for c in conditions for name in c.attacks
    ):
        raise ValueError(
            "adapt: no attack here takes a loss: name one of fgsm, bim, pgd and apgd, such "
            "as 'apgd-100'"
        )
    return [_adapted(condition, bound) for condition in conditions]


def _adapted(condition: Condition, bound: BoundAdaptation) -> Condition:
    special = bound.changes_verdicts
    if not condition.searches and not special:
        return condition
    if condition.kind == "curve" and special:
        raise ValueError(
            f"{condition.name}: a curve has no draws, name an attack of one step count"
        )
    if condition.kind == "certificate" or (condition.certifies and special):
        raise ValueError(
            f"{condition.name}: no certificate covers a randomized model: leave it out"
        )
    if condition.name == RADII:
        raise ValueError("radii are not searched adaptively: evaluate at a list of radii")
    if condition.precision != "float32":
        raise ValueError(
            "a search in bfloat16 passes a folded model, which has no adaptive slots: "
            "leave search_precision at float32"
        )
    stages = tuple(
        _with_goal(stage, condition, bound) if isinstance(stage, AttackSearch) else stage
        for stage in condition.stages
    )
    searches = [stage for stage in stages if isinstance(stage, AttackSearch)]
    if bound.verdict_draws > 1:
        first = searches[0] if searches else None
        stages = (RandomizedSearch(first, bound.verdict_draws),)
    return replace(
        condition,
        name=f"{condition.name}{ADAPTED}",
        stages=stages,
        settings={**condition.settings, **bound.settings},
        adaptation=bound,
    )


def _with_goal(
    search: AttackSearch, condition: Condition, bound: BoundAdaptation
) -> AttackSearch:
    """Let the attacks that take a goal, and have none of their own, maximize the loss."""
    if bound.goal is None:
        return search
    attacks: list[BoundAttack] = [
        attack.with_goal(bound.goal)
        if "goal" in name.entry.parameters and name.target == "none"
        else attack
        for attack, name in zip(search.attacks, condition.attacks, strict=True)
    ]
    return replace(search, attacks=attacks)


def _key(draws: Draws, *words: str | int) -> int:
    """Return a key of a batch, for passes whose randomness it shares."""
    return int(draws.stream(*words).keys[0]) if len(draws) else 0
