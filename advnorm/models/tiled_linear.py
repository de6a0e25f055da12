r"""A linear layer for images enlarged by repeating pixels, at the cost of the small ones.

An image each of whose pixels fills a tile of :math:`k \times k` is :math:`x = k U z`: z are
the pixels, the columns of U are orthonormal (1/k on a tile). A layer W has two parts,

.. math:: W = A U^\top + s R, \qquad A = W U, \quad R U = 0,

and on such images :math:`W x = A\, k z`: R has no effect. The gradient of W is that of A
times :math:`U^\top`. So a step of gradient descent (with momentum, weight decay and clipped
gradients, for U keeps lengths) moves A as it would move W, and shrinks R by weight decay
alone, which is what happens to s, one number an output. Training A with :math:`k z` is
therefore training W with x, at :math:`1 / k^2` of the cost. This does not hold for Adam and
other optimizers that scale each weight by itself.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from advnorm.models.registry import BuildContext


class TileGrid(NamedTuple):
    """Images of ``channels x rows x columns`` tiles, each of ``side x side`` pixels."""

    channels: int
    rows: int
    columns: int
    side: int

    @classmethod
    def of(cls, context: BuildContext, side: int) -> "TileGrid":
        """Divide the images of a model into tiles."""
        channels, height, width = context.image_shape()
        if side < 1 or height % side or width % side:
            raise ValueError(
                f"{context.name} cannot divide images of {height}x{width} into tiles of "
                f"{side}x{side}: set tile to a divisor of both sides"
            )
        return cls(channels, height // side, width // side, side)

    def tiles(self, x: Tensor) -> Tensor:
        """View ``(..., pixels)`` as ``(..., channels, rows, side, columns, side)``."""
        shape = (self.channels, self.rows, self.side, self.columns, self.side)
        return x.reshape(*x.shape[:-1], *shape)

    def fold(self, x: Tensor) -> Tensor:
        r"""Return :math:`U^\top x`: the sum over each tile, divided by its side."""
        return self.tiles(x).sum((-3, -1)).flatten(-3) / self.side

    def unfold(self, z: Tensor) -> Tensor:
        r"""Return :math:`U z`: each value, divided by the side, all over its tile."""
        corners = z.view(*z.shape[:-1], self.channels, self.rows, 1, self.columns, 1)
        tiles = corners.expand(*corners.shape[:-3], self.side, self.columns, self.side)
        return tiles.flatten(-5) / self.side


def untile(model: nn.Module) -> nn.Module:
    """Replace each :class:`TiledLinear` by a plain linear layer; return the model."""
    for owner in list(model.modules()):
        for name, layer in owner.named_children():
            if isinstance(layer, TiledLinear):
                setattr(owner, name, layer.to_linear())
    return model


class TiledLinear(nn.Module):
    """A linear layer on flattened images, in the parts above.

    ``core`` is A, of shape ``(outputs, tiles)``, ``rest`` is R, ``scale`` is s. It begins
    as ``layer``. In training, images that do not consist of tiles are refused; attacks and
    evaluation may pass any image.
    """

    rest: Tensor

    def __init__(self, layer: nn.Linear, grid: TileGrid) -> None:
        super().__init__()
        self.grid = grid
        weight = layer.weight.detach()
        self.core = nn.Parameter(grid.fold(weight))
        self.scale = nn.Parameter(weight.new_ones(len(weight), 1))
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.register_buffer("rest", weight - grid.unfold(self.core.detach()))

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, pixels)`` to ``(batch, outputs)``."""
        if self.training and torch.is_grad_enabled() and self.core.requires_grad:
            tiles = self.grid.tiles(input)
            corner = tiles[..., :1, :, :1]
            self._check_tiles(tiles, corner)
            if not input.requires_grad:  # else every pixel has a gradient of its own
                output = F.linear(corner.flatten(1) * self.grid.side, self.core, self.bias)
                # the scale has no gradient, and yet decays
                return output + (0 * self.scale.T).to(output.dtype)
        output = F.linear(self.grid.fold(input), self.core, self.bias)
        return output + self.scale.T * F.linear(input, self.rest)

    def to_linear(self) -> nn.Linear:
        """Return the plain linear layer that computes the same now."""
        layer = nn.Linear(self.rest.shape[1], self.rest.shape[0], device="meta")
        weight = self.scale * self.rest + self.grid.unfold(self.core)
        layer.weight, layer.bias = nn.Parameter(weight.detach()), self.bias
        return layer

    def extra_repr(self) -> str:
        """Show the shape of the weights and the side of a tile."""
        return f"{self.rest.shape[1]}, {self.rest.shape[0]}, tile={self.grid.side}"

    def _check_tiles(self, tiles: Tensor, corner: Tensor) -> None:
        if not bool((tiles == corner).all()):
            side = self.grid.side
            raise ValueError(
                f"the images do not consist of tiles of {side}x{side} equal pixels: train "
                "on images enlarged with data.resample=nearest, without augmentation and "
                "attacks, or leave out the model's option tile"
            )
