"""What is differentiated in a step: an objective of a model on a batch."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.objectives import OBJECTIVES, Adversary, Loss, Objective


@dataclass(frozen=True)
class BatchObjective:
    """An objective of a model on a batch; of several ranks, this rank's rows of it."""

    model: nn.Module
    clean: Tensor
    labels: Tensor
    objective: Objective = OBJECTIVES["standard"]
    adversary: Adversary = field(default_factory=partial(Adversary, None))
    scale: float = 1.0
    """Factor of the gradient: the scale of half precision, a share of an accumulation."""
    logits: nn.Module | None = None
    """What the objective calls instead of ``model``: its compiled form."""
    whole: int | None = None
    """Rows of the batch over all ranks; by default this is all of it."""
    all_reduce: Callable[[Iterable[Tensor]], None] = ranks.all_reduce
    """Replaces tensors by their sums over the ranks."""

    @property
    def size(self) -> int:
        """Rows of the batch over all ranks."""
        return self.whole or len(self.clean)

    @property
    def share(self) -> float:
        """The part of the rows that this rank has."""
        return len(self.clean) / self.size

    def backward(self, weight: float = 1.0) -> Loss:
        """Run the objective and add ``weight`` times its gradient to ``.grad``."""
        model = self.model if self.logits is None else self.logits
        loss = self.objective(model, self.clean, self.labels, self.adversary)
        (loss.total * (self.scale * self.share * weight)).backward()  # type: ignore[no-untyped-call]
        return loss

    def of(self, rows: Tensor, adversary: Adversary, *, whole: int) -> "BatchObjective":
        """Return the problem of some rows, ``whole`` over all ranks."""
        clean, labels = self.clean[rows], self.labels[rows]
        return replace(self, clean=clean, labels=labels, adversary=adversary, whole=whole)

    def gradients(self) -> list[Tensor]:
        """Return the gradients that there are."""
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def forget(self) -> None:
        """Drop all gradients."""
        for parameter in self.model.parameters():
            parameter.grad = None

    @contextmanager
    def accumulated(self) -> Iterator[None]:
        """Set gradients aside for a block and add them to the block's own at its end."""
        before = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
        self.forget()
        try:
            yield
        finally:
            for parameter, old in before:
                new, parameter.grad = parameter.grad, old
                if new is not None:
                    old.add_(new)

    @contextmanager
    def climbed(self, rho: float) -> Iterator[None]:
        r"""Move the weights by :math:`\rho g / \|g\|_2` for a block (apart2022 Eq. 7).

        ``g`` is all of ``.grad`` together; afterwards every bit is as it was.
        """
        pairs = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
        weights = [p.detach() for p, _ in pairs]
        gradients = [g.detach() for _, g in pairs]
        before = [weight.clone() for weight in weights]
        length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        tiny = torch.finfo(length.dtype).tiny
        steps = torch._foreach_mul(gradients, rho / length.clamp_min(tiny))
        try:
            torch._foreach_add_(weights, steps)
            torch.clear_autocast_cache()  # its copies are of the weights as they were
            yield
        finally:
            torch._foreach_copy_(weights, before)
            torch.clear_autocast_cache()
