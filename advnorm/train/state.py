"""Where a run stands: everything beyond the recipe that decides what comes next."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Totals:
    """Sums over the steps of the epoch so far, in double precision."""

    count: int = 0
    correct: float = 0.0
    loss: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def add(self, count: int, loss: float, correct: float, parts: dict[str, float]) -> None:
        """Add a step of ``count`` samples."""
        self.count += count
        self.correct += correct
        self.loss += loss * count
        for name, value in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + value * count


@dataclass
class State:
    """The position in training; saved with the weights."""

    epoch: int = 0
    seen: int = 0
    """Steps done in this epoch."""
    step: int = 0
    totals: Totals = field(default_factory=Totals)
    best_score: float = -1.0
    scale: float = 1.0
    """Loss scale of half precision, and the steps since it last changed."""
    steady: int = 0

    def facts(self) -> dict[str, Any]:
        """Return plain values; JSON keeps every bit of a float."""
        return asdict(self)

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "State":
        """Return the state that :meth:`facts` wrote."""
        return cls(**{**facts, "totals": Totals(**facts["totals"])})


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights, buffers and the optimizer's memory by name."""
    named = {f"model/{name}": value for name, value in model.state_dict().items()}
    for index, memory in optimizer.state_dict()["state"].items():
        for name, value in memory.items():
            if isinstance(value, Tensor):
                named[f"optimizer/{index}/{name}"] = value
    return named


def restore(
    named: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> None:
    """Put back what :func:`tensors` returned."""
    weights = {
        name.removeprefix("model/"): value
        for name, value in named.items()
        if name.startswith("model/")
    }
    model.load_state_dict(weights)
    if optimizer is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    memory: dict[int, dict[str, Tensor]] = {}
    for name, value in named.items():
        if name.startswith("optimizer/"):
            _, index, key = name.split("/")
            like = parameters[int(index)]
            if value.shape == like.shape:  # the layout of its parameter, as it was
                value = torch.empty_like(like, dtype=value.dtype).copy_(value)
            memory.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})
