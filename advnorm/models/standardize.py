r"""The first layer of a network: standardize images in [0, 1].

Standardization is inside of the model, so that a threat is stated on the images themselves
and an attack includes it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    r"""Standardize each channel with the moments of a data set, in buffers.

    .. math:: x \mapsto (x - \mu_c) / \sigma_c

    Takes ``(batch, channels, ...)`` of any rank; a single mean and std serve all channels.

    >>> Standardize([0.5], [0.25])(torch.tensor([[0.5, 1.0]]))
    tensor([[0., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ValueError(
                f"give one mean and one std a channel, not {len(mean)} and {len(std)}"
            )
        if not all(value > 0 for value in std):
            raise ValueError(f"every std must be positive, not {list(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, clean: Tensor) -> Tensor:
        """Standardize ``(batch, channels, ...)``."""
        return ((clean.movedim(1, -1) - self.mean) / self.std).movedim(-1, 1)

    def extra_repr(self) -> str:
        """Show the moments."""
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class PerImageStandardize(nn.Module):
    r"""Standardize each image with its own moments (galloway2019, appendix J.1).

    .. math:: x \mapsto \frac{x - \bar x}{\max(\sigma(x), \epsilon)}

    The mean and the (population) standard deviation are over all features of the image. A
    constant image becomes zero, and so does its gradient.
    """

    def __init__(self, *, eps: float = 1e-6) -> None:
        super().__init__()
        if eps <= 0:
            raise ValueError(f"eps must be positive, not {eps}")
        self.eps = eps

    def forward(self, clean: Tensor) -> Tensor:
        """Standardize ``(batch, ...)``, each sample by itself."""
        flat = clean.flatten(1)
        centred = flat - flat.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        # The clamp is inside of the root, whose gradient at zero is infinite.
        return (centred / variance.clamp(min=self.eps**2).sqrt()).view_as(clean)

    def extra_repr(self) -> str:
        """Show the constant."""
        return f"eps={self.eps}"
