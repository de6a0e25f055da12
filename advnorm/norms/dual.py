r"""Dual batch norm: a Gaussian gate decides whose statistics (sitawarin2021, 5 and F)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.norms.fused import Standardized, gate, standardize
from advnorm.norms.mode import moves, uses_batch
from advnorm.norms.moments import Moments, move, single
from advnorm.norms.route import Routed
from advnorm.norms.standard import NORMS, BatchNorm, Norm, affine


class DualNorm(Routed):
    r"""Normalize by both domains' moments, weighted by the posterior of each domain.

    At every position, :math:`x \in \mathbb{R}^C` (Eqns. 10-20):

    .. math::
        \hat x = p \frac{x - \mu_{cl}}{\sigma_{cl}}
        + (1 - p) \frac{x - \mu_{adv}}{\sigma_{adv}}, \qquad
        p = \operatorname{sigmoid}\bigl(\log \mathcal N(x \mid \mu_{cl}, \sigma_{cl}^2)
        - \log \mathcal N(x \mid \mu_{adv}, \sigma_{adv}^2)\bigr)

    then :math:`w \odot \hat x + b` with shared :math:`w, b`; :math:`\sigma^2` includes the
    constant c. The gate is part of the model: gradients pass through it. In training the
    moments of a domain are those of its rows in the batch; of a domain that the batch does
    not have, the running ones. In evaluation the route is not needed.
    """

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
            BatchNorm, num_features, eps=eps, momentum=momentum, affine=False, sync=sync
        )
        self.clean, self.adversarial = make(), make()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self._terms: list[Tensor] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``, each position by its own gate."""
        one, other = self.route.split(single(input))
        clean, adversarial = (
            self._seen(self.clean, one),
            self._seen(self.adversarial, other),
        )
        parts = [
            self._gate(own, other)
            for own, other in ((clean, adversarial), (adversarial, clean))
            if len(own.value)
        ]
        if self._terms is not None:
            losses = torch.cat([F.softplus(-odds) for _, odds in parts])
            self._terms.append(losses.sum() / len(input))
        outputs = [output for output, _ in parts]
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).to(input.dtype)

    def _seen(self, branch: BatchNorm, rows: Tensor) -> Standardized:
        """Normalize the rows of a domain by its own moments."""
        branch._check_input_dim(rows)
        if len(rows) and uses_batch(branch):
            seen = standardize(rows, self.eps, sync=branch.sync)
            if moves(branch):
                move(branch, seen.moments)
            return seen
        mean, var = branch.running_mean, branch.running_var
        assert mean is not None and var is not None
        moments = Moments(single(mean), single(var), 0)
        return Standardized(affine(rows, moments, self.eps, None, None), moments)

    def _gate(self, own: Standardized, other: Standardized) -> tuple[Tensor, Tensor]:
        sigma = torch.sqrt(own.moments.var + self.eps)
        inverse = torch.rsqrt(other.moments.var + self.eps)
        shift = (own.moments.mean - other.moments.mean) * inverse
        weight = torch.ones_like(sigma) if self.weight is None else single(self.weight)
        bias = torch.zeros_like(sigma) if self.bias is None else single(self.bias)
        return gate(own.value, sigma * inverse, shift, weight, bias)


@contextmanager
def likelihood(model: nn.Module) -> Iterator[list[Tensor]]:
    r"""Collect the likelihood loss of every dual layer that runs (Eqn. 21).

    .. math::
        L = -1\{x \in cl\} \log p_{cl} - 1\{x \in adv\} \log (1 - p_{cl})

    summed over positions, one term a layer and pass; the sum over layers is
    ``sum(terms)``. Empty for a model without dual layers.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, DualNorm)]
    before = [layer._terms for layer in layers]
    terms: list[Tensor] = []
    try:
        for layer in layers:
            layer._terms = terms
        yield terms
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer._terms = old


@NORMS.register("dual")
def dual(
    *,
    eps: float = 1e-5,
    momentum: float | None = 0.1,
    affine: bool = True,
    sync: bool = False,
) -> Norm:
    """Dual batch norm (DBN, sitawarin2021): two sets of moments and a Gaussian gate."""
    return partial(DualNorm, eps=eps, momentum=momentum, affine=affine, sync=sync)
