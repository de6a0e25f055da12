"""What an objective is: a pure function from a batch to a loss with its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from advnorm import norms
from advnorm.attacks import LogitsFn, hard_labels
from advnorm.registry import Registry
from advnorm.scoped import frozen


class Loss(NamedTuple):
    """The number to minimize, what it consists of, and how many samples were right."""

    total: Tensor
    parts: dict[str, Tensor]
    correct: Tensor


@dataclass(frozen=True)
class Adversary:
    """The attack inside training, and which statistics the norms use while it searches.

    It never moves running statistics and takes no gradient of parameters. Without a
    ``search`` (eps is still 0 in its schedule) the images stay clean.
    """

    search: Callable[[LogitsFn, Tensor, Tensor], Tensor] | None
    statistics: norms.Mode = "running"

    def __post_init__(self) -> None:
        if self.statistics == "train":
            raise ValueError(
                "an attack must not move running statistics: set attack.statistics to "
                "'running' or 'batch'"
            )

    def __call__(self, model: nn.Module, clean: Tensor, labels: Tensor) -> Tensor:
        """Return one adversarial image a clean one."""
        if self.search is None:
            return clean
        with norms.mode(model, self.statistics), frozen(model):
            return self.search(model, clean, labels)


Objective = Callable[[nn.Module, Tensor, Tensor, Adversary], Loss]
OBJECTIVES: Registry[Objective] = Registry("objective")


def right(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the samples whose largest logit is the label's."""
    return (logits.detach().argmax(1) == hard_labels(labels)).sum()
