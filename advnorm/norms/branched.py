"""Norms with one test-time answer for each domain: results must name the branch."""

from typing import TYPE_CHECKING

from torch import nn

from advnorm.norms.route import Domain, RoutedLayer

if TYPE_CHECKING:
    from advnorm.norms.standard import BatchNorm


class BranchedNorm(RoutedLayer):
    """A norm that answers a whole batch of one domain as a batch norm of that domain.

    The gate of a dual norm chooses by itself, so a dual norm has no branches in this sense.
    """

    def branch(self, domain: Domain) -> "BatchNorm":
        """Return the batch norm of one domain; its tensors are those of this layer."""
        raise NotImplementedError(
            f"{type(self).__name__} does not say what its branches are"
        )


def has_branches(model: nn.Module) -> bool:
    """Tell whether the answer of a model depends on the branch (mixture, affine)."""
    return active_branch(model) is not None


def active_branch(model: nn.Module) -> Domain | None:
    """Return the branch that a whole batch would use now; ``None`` without branches."""
    for layer in model.modules():
        if isinstance(layer, BranchedNorm):
            return layer.route.domain
    return None
