"""Norms at some places of a model only, and the parameters of all norms of a model."""

from collections.abc import Collection, Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from advnorm.norms.affine import DomainParameters
from advnorm.norms.dual import DualNorm
from advnorm.norms.standard import Norm

_KINDS = (_NormBase, nn.GroupNorm, nn.LayerNorm, DualNorm, DomainParameters)


class SelectiveNorm:
    """A norm in some places only, counted from 0 in the order the model is built.

    >>> from advnorm.norms import NORMS
    >>> norm = SelectiveNorm(NORMS["batch"](), [1])
    >>> [type(norm(8)).__name__ for _ in range(3)], norm.built
    (['Identity', 'BatchNorm', 'Identity'], 3)
    """

    def __init__(self, norm: Norm, places: Collection[int]) -> None:
        self.norm, self.places = norm, places
        self.built = 0

    def __call__(self, features: int) -> nn.Module:
        """Return the layer of the next place."""
        self.built += 1
        return self.norm(features) if self.built - 1 in self.places else nn.Identity()

    def check(self) -> None:
        """Refuse places that the model, now built, does not have."""
        missing = sorted(place for place in self.places if not 0 <= place < self.built)
        if missing:
            raise ValueError(
                f"the model has {self.built} places for a norm (0 to {self.built - 1}), "
                f"and no place {missing[0]}"
            )


def norm_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of the norms, which xie2020, section 4.4, fine-tunes."""
    for layer in model.modules():
        if isinstance(layer, _KINDS):
            yield from layer.parameters(recurse=False)
