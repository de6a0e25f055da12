"""Adversarial images that are computed once and used again in the same step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from torch import Tensor

from advnorm.attacks import AttackGoal, LogitsFn
from advnorm.objectives.registry import Adversary


class AdversaryCache:
    """Records the adversarial images of one pass, and replays rows of them in another.

    ``during`` is entered for each attack.
    """

    def __init__(
        self,
        adversary: Adversary,
        *,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.adversary, self.during = adversary, during
        self.images: list[Tensor] = []

    def record(self) -> Adversary:
        """Return the adversary; its images are stored."""
        search = self.adversary.search
        if search is None:
            return self.adversary

        def attack(
            logits_fn: LogitsFn, clean: Tensor, labels: Tensor, goal: AttackGoal
        ) -> Tensor:
            with self.during():
                self.images.append(search(logits_fn, clean, labels, goal))
            return self.images[-1]

        return replace(self.adversary, search=attack)

    def replay(self, rows: Tensor) -> Adversary:
        """Return an adversary that returns rows of the stored images, in order."""
        if self.adversary.search is None:
            return self.adversary
        stored: Iterator[Tensor] = iter(self.images)

        def attack(
            logits_fn: LogitsFn, clean: Tensor, labels: Tensor, goal: AttackGoal
        ) -> Tensor:
            return next(stored)[rows]

        return replace(self.adversary, search=attack)
