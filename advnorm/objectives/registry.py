"""What an objective is: a pure function from a batch to a loss with its parts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm import norms
from advnorm.attacks import Aim, LogitsFn, hard_labels, untargeted
from advnorm.model_state import frozen_parameters
from advnorm.registry import Registry
from advnorm.threat import Threat


class Loss(NamedTuple):
    """The number to minimize, what it consists of, and how many samples were right."""

    total: Tensor
    parts: dict[str, Tensor]
    correct: Tensor


Search = Callable[[LogitsFn, Tensor, Tensor, Aim], Tensor]


@dataclass(frozen=True)
class Adversary:
    """The attack inside training, and which statistics the norms use while it searches.

    It sees the adversarial branch where there is one, never moves running statistics and
    takes no gradient of parameters. Without a ``search`` (eps is still 0 in its schedule)
    the images stay clean. Objectives that bound the worst case instead of searching for it
    take the ``threat`` itself, at its radius now.
    """

    search: Search | None
    statistics: norms.Mode = "running"
    aim: Aim = untargeted
    threat: Threat | None = None

    def __post_init__(self) -> None:
        if self.statistics == "train":
            raise ValueError(
                "an attack must not move running statistics: set attack.statistics to "
                "'running' or 'batch'"
            )

    def __call__(
        self, model: nn.Module, clean: Tensor, labels: Tensor, *, aim: Aim | None = None
    ) -> Tensor:
        """Return one adversarial image a clean one; ``aim`` is the objective's own."""
        if self.search is None:
            return clean
        with self._scope(model, "adversarial"), frozen_parameters(model):
            return self.search(model, clean, labels, aim or self.aim)

    def clean_logits(self, model: nn.Module, clean: Tensor) -> Tensor:
        """Return what the model says of clean images, with the attack's statistics."""
        with self._scope(model, "clean"), torch.no_grad():
            logits: Tensor = model(clean)
        return logits

    @contextmanager
    def _scope(self, model: nn.Module, domain: norms.Domain) -> Iterator[None]:
        with norms.mode(model, self.statistics), norms.route(model, domain=domain):
            yield


Objective = Callable[..., Loss]  # (model, clean, labels, adversary, *, ...)
OBJECTIVES: Registry[Objective] = Registry("objective")


def count_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the samples whose largest logit is the label's."""
    return (logits.detach().argmax(1) == hard_labels(labels)).sum()
