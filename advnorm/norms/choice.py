"""Norms on some layers only, and the parameters that belong to norms."""

from collections.abc import Collection, Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from advnorm.norms.dual import DualNorm
from advnorm.norms.standard import Norm

_KINDS = (_NormBase, nn.GroupNorm, nn.LayerNorm, DualNorm)


def chosen(norm: Norm, places: Collection[int]) -> Norm:
    """Return a norm that normalizes only some places, counted from 0 as a model is built.

    >>> from advnorm.norms import NORMS
    >>> some = chosen(NORMS["batch"](), [1])
    >>> [type(some(8)).__name__ for _ in range(3)]
    ['Identity', 'BatchNorm', 'Identity']
    """
    built = iter(range(10**9))

    def build(features: int) -> nn.Module:
        return norm(features) if next(built) in places else nn.Identity()

    return build


def norm_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of the norms: what xie2020, section 4.4, fine-tunes."""
    for layer in model.modules():
        if isinstance(layer, _KINDS):
            yield from layer.parameters(recurse=False)
