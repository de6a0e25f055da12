"""The objective of a model on one batch: what a step differentiates."""

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
    """The objective of a model on one batch; with several ranks, on this rank's rows."""

    model: nn.Module
    clean: Tensor
    labels: Tensor
    objective: Objective = OBJECTIVES["standard"]
    adversary: Adversary = field(default_factory=partial(Adversary, None))
    scale: float = 1.0
    """Factor of the gradient: the loss scale of half precision, or a share of the batch."""
    compiled: nn.Module | None = None
    """The compiled model, which the objective then calls instead of ``model``."""
    global_rows: int | None = None
    """Rows of the batch on all ranks together; by default those of this rank."""
    all_reduce: Callable[[Iterable[Tensor]], None] = ranks.all_reduce
    """Replaces tensors by their sums over the ranks."""

    @property
    def batch_size(self) -> int:
        """Rows of the batch on all ranks together."""
        return self.global_rows or len(self.clean)

    @property
    def share(self) -> float:
        """The fraction of the rows that this rank has."""
        return len(self.clean) / self.batch_size

    def backward(self, weight: float = 1.0) -> Loss:
        """Run the objective and add ``weight`` times its gradient to ``.grad``."""
        model = self.model if self.compiled is None else self.compiled
        loss = self.objective(model, self.clean, self.labels, self.adversary)
        (loss.total * (self.scale * self.share * weight)).backward()  # type: ignore[no-untyped-call]
        return loss

    def subset(
        self, rows: Tensor, adversary: Adversary, *, global_rows: int
    ) -> "BatchObjective":
        """Return the objective on some rows of this rank."""
        return replace(
            self,
            clean=self.clean[rows],
            labels=self.labels[rows],
            adversary=adversary,
            global_rows=global_rows,
        )

    def gradients(self) -> list[Tensor]:
        """Return the gradients of all parameters that have one."""
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def zero_grad(self) -> None:
        """Delete all gradients."""
        for parameter in self.model.parameters():
            parameter.grad = None

    @contextmanager
    def accumulated(self) -> Iterator[None]:
        """Start the block without gradients; afterwards add the earlier ones to its own."""
        before = [(p, p.grad) for p in self.model.parameters() if p.grad is not None]
        self.zero_grad()
        try:
            yield
        finally:
            for parameter, old in before:
                new, parameter.grad = parameter.grad, old
                if new is not None:
                    old.add_(new)

    @contextmanager
    def perturbed_weights(self, rho: float) -> Iterator[None]:
        r"""Move the weights by :math:`\rho g / \|g\|_2` for a block (apart2022 Eq. 7).

        ``g`` is all of ``.grad`` together. The weights are restored bit by bit.
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
            torch.clear_autocast_cache()  # it holds copies of the weights before
            yield
        finally:
            torch._foreach_copy_(weights, before)
            torch.clear_autocast_cache()
