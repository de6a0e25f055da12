r"""Mixture batch norm: each domain has its own batch norm (xie2020, section 4.2)."""

from functools import partial

import torch
from torch import Tensor

from advnorm.norms.branched import BranchedNorm
from advnorm.norms.route import Domain, RoutedLayer
from advnorm.norms.standard import BatchNorm, register_layer


class TwoBatchNorms(RoutedLayer):
    """Two batch norms, ``clean`` and ``adversarial``, one for each domain."""

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        sync: bool = False,
    ) -> None:
        super().__init__()
        make = partial(
            BatchNorm, num_features, eps=eps, momentum=momentum, affine=affine, sync=sync
        )
        self.clean, self.adversarial = make(), make()

    def branch(self, domain: Domain) -> BatchNorm:
        """Return the batch norm of one domain."""
        return self.clean if domain == "clean" else self.adversarial


@register_layer("mixture")
class MixtureNorm(TwoBatchNorms, BranchedNorm):
    r"""Mixture batch norm (MBN, xie2020): a separate batch norm for each domain.

    .. math::
        \hat x = \gamma_d \frac{x - \mu_d}{\sqrt{\sigma_d^2 + c}} + \beta_d, \qquad
        d \in \{\text{clean}, \text{adversarial}\}

    The route gives the domain :math:`d` of each sample. At test time one branch answers,
    so a result must name the branch. With ``sync``, all ranks must have the same domains.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize the first rows as clean and the rest as adversarial."""
        rows = self.route.clean_rows(len(input))
        if 0 < rows < len(input):
            clean, adversarial = self.route.split(input)
            return torch.cat([self.clean(clean), self.adversarial(adversarial)])
        output: Tensor = self.clean(input) if rows else self.adversarial(input)
        return output
