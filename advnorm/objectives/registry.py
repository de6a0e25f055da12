"""What an objective is: a function from a batch to a loss with its parts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm import norms
from advnorm.attacks import AttackGoal, LogitsFn, hard_labels, untargeted
from advnorm.model_state import frozen_parameters
from advnorm.registry import Registry
from advnorm.threat import Threat


class Loss(NamedTuple):
    """The loss to minimize, its parts, and the number of correctly classified samples."""

    total: Tensor
    parts: dict[str, Tensor]
    correct: Tensor


Search = Callable[[LogitsFn, Tensor, Tensor, AttackGoal], Tensor]


@dataclass(frozen=True)
class Adversary:
    """The attack inside training, and the statistics that norms use while it runs.

    It uses the adversarial branch if there is one, never updates running statistics and
    computes no gradient of parameters. Without a ``search`` (while the schedule has eps at
    0) the images stay clean. Objectives that bound the worst case use the ``threat``, with
    the radius of the schedule.
    """

    search: Search | None
    statistics: norms.Mode = "running"
    goal: AttackGoal = untargeted
    threat: Threat | None = None

    def __post_init__(self) -> None:
        if self.statistics == "train":
            raise ValueError(
                "an attack must not update running statistics: set attack.statistics to "
                "'running' or 'batch'"
            )

    def __call__(
        self,
        model: nn.Module,
        clean: Tensor,
        labels: Tensor,
        *,
        goal: AttackGoal | None = None,
    ) -> Tensor:
        """Return an adversarial image for each clean one; ``goal`` replaces its own."""
        if self.search is None:
            return clean
        with self._scope(model, "adversarial"), frozen_parameters(model):
            return self.search(model, clean, labels, goal or self.goal)

    def clean_logits(self, model: nn.Module, clean: Tensor) -> Tensor:
        """Return the logits of clean images, with the attack's statistics."""
        with self._scope(model, "clean"), torch.no_grad():
            logits: Tensor = model(clean)
        return logits

    @contextmanager
    def _scope(self, model: nn.Module, domain: norms.Domain) -> Iterator[None]:
        with norms.mode(model, self.statistics), norms.route(model, domain=domain):
            yield


Objective = Callable[..., Loss]
"""``objective(model, clean, labels, adversary, *, ...) -> Loss``."""
OBJECTIVES: Registry[Objective] = Registry("objective")
"""The objectives by name."""


def count_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the samples whose largest logit is the label's."""
    return (logits.detach().argmax(1) == hard_labels(labels)).sum()
