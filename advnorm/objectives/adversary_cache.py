"""Adversarial images that are found once and used again in the same step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from torch import Tensor

from advnorm.attacks import Aim, LogitsFn
from advnorm.objectives.registry import Adversary


class AdversaryCache:
    """Remembers what an adversary finds in one pass, and gives rows of it in another.

    ``during`` is entered for each search.
    """

    def __init__(
        self,
        adversary: Adversary,
        *,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.adversary, self.during = adversary, during
        self.found: list[Tensor] = []

    def recording(self) -> Adversary:
        """Return the adversary, whose images are kept."""
        search = self.adversary.search
        if search is None:
            return self.adversary

        def record(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, aim: Aim) -> Tensor:
            with self.during():
                self.found.append(search(logits_fn, clean, labels, aim))
            return self.found[-1]

        return replace(self.adversary, search=record)

    def recalling(self, rows: Tensor) -> Adversary:
        """Return an adversary that gives rows of what was found, and never searches."""
        if self.adversary.search is None:
            return self.adversary
        again: Iterator[Tensor] = iter(self.found)

        def recall(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, aim: Aim) -> Tensor:
            return next(again)[rows]

        return replace(self.adversary, search=recall)
