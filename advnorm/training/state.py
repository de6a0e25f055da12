"""The state of training: everything beside the recipe that a resumed run needs."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from advnorm.records import first_mistake
from advnorm.text import cut, shorten


class MismatchError(ValueError):
    """A checkpoint of another model or optimizer."""


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
    """Loss scale of half precision."""
    steady: int = 0
    """Steps since the loss scale last changed."""

    def facts(self) -> dict[str, Any]:
        """Return plain values; JSON keeps every bit of a float."""
        return asdict(self)


class ResumePoint(NamedTuple):
    """The facts of a training checkpoint, besides its tensors."""

    state: State
    epochs: int
    """How many are recorded in ``metrics.jsonl``."""
    data: str
    """The digest of the data that was trained on."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "ResumePoint":
        """Read and validate the facts of a checkpoint."""
        try:
            return TypeAdapter(cls).validate_python(facts)
        except ValidationError as error:
            raise MismatchError(
                f"the checkpoint is not of a training ({first_mistake(error)}): train anew"
            ) from None


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the weights, buffers and the optimizer's state by name."""
    named = {f"model/{name}": value for name, value in model.state_dict().items()}
    for index, memory in optimizer.state_dict()["state"].items():
        for name, value in memory.items():
            if isinstance(value, Tensor):
                named[f"optimizer/{index}/{name}"] = value
    return named


def restore(
    named: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> None:
    """Restore what :func:`tensors` returned."""
    weights = {
        name.removeprefix("model/"): value
        for name, value in named.items()
        if name.startswith("model/")
    }
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise MismatchError(cut(str(error).splitlines()[-1].strip())) from None
    if optimizer is None:
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    memory: dict[int, dict[str, Tensor]] = {}
    for name, value in named.items():
        if name.startswith("optimizer/"):
            index, key = _parse_name(name, len(parameters))
            like = parameters[index]
            if value.shape == like.shape:  # in the memory format of its parameter
                value = torch.empty_like(like, dtype=value.dtype).copy_(value)
            memory.setdefault(index, {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": memory})


def _parse_name(name: str, count: int) -> tuple[int, str]:
    """Read ``optimizer/<number of the parameter>/<key>``."""
    _, index, *keys = name.split("/")
    if len(keys) != 1 or not index.isdecimal() or int(index) >= count:
        raise MismatchError(f"{shorten(name)} is not of this optimizer")
    return int(index), keys[0]
