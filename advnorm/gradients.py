"""How a step's gradient is obtained, given an objective."""

from collections.abc import Callable

from advnorm.objectives import Loss


def plain(objective: Callable[[], Loss], *, scale: float = 1.0) -> Loss:
    """Fill ``.grad`` by one backward pass; ``scale`` is that of half precision."""
    loss = objective()
    (loss.total * scale).backward()  # type: ignore[no-untyped-call]
    return loss
