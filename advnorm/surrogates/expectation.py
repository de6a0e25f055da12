r"""Expected logits, over the randomness of a model or over small shifts of its input (EOT).

Expectation over transformation (Athalye et al., 2018, https://arxiv.org/abs/1802.00420,
section 4.2): an attack on a randomized model :math:`f_t` follows

.. math::
    \nabla_x \operatorname{E}_t f_t(x) = \operatorname{E}_t \nabla_x f_t(x),

and the mean over some draws estimates both. With ``noise`` the input of each draw is moved
by a Gaussian offset too, which smooths a rugged model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from advnorm.draws import Draws

LogitsFn = Callable[[Tensor], Tensor]
_SEED_BITS = (1 << 63) - 1


def expected_logits(
    logits_fn: LogitsFn, draws: int, *, noise: float = 0.0, seed: int = 0
) -> LogitsFn:
    """Return the mean of ``draws`` passes, and so the mean of their gradients.

    The offsets of ``noise`` are a function of seed and draw alone: they are the same for
    all samples and in all steps, so that the mean is one smoothed model.
    """

    def mean(images: Tensor) -> Tensor:
        total = logits_fn(images + offset(0, images) if noise else images)
        for draw in range(1, draws):
            total = total + logits_fn(images + offset(draw, images) if noise else images)
        return total / draws

    def offset(draw: int, images: Tensor) -> Tensor:
        keys = Draws.of(seed, torch.tensor([draw], device=images.device))
        return noise * keys.stream("smoothing").normal(
            *images.shape[1:], dtype=images.dtype
        )

    return mean


@contextmanager
def seeded(key: int, like: Tensor) -> Iterator[None]:
    """Run a block with torch's random numbers decided by ``key``; restore their state."""
    devices = [like.device] if like.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(key & _SEED_BITS)
        if devices:
            with torch.cuda.device(like.device):
                torch.cuda.manual_seed(key & _SEED_BITS)
        yield


def drawn_logits(logits_fn: LogitsFn, images: Tensor, keys: Draws, draws: int) -> Tensor:
    """Return the logits of each image in ``draws`` passes: ``(batch, draws, classes)``.

    Each pass holds one image, and its random numbers are a function of (key, draw): a
    sample's draws depend neither on its batch nor on how the model uses its randomness.
    """
    rows = []
    with torch.no_grad():
        for number in range(len(images)):
            image, passes = images[number : number + 1], []
            for draw in range(draws):
                key = int(keys[slice(number, number + 1)].stream("pass", draw).keys)
                with seeded(key, images):
                    passes.append(logits_fn(image))
            rows.append(torch.stack(passes, 1))
    return torch.cat(rows)
