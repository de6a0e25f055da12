r"""Dual batch norm: a Gaussian gate decides whose statistics (sitawarin2021, 5 and F)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.norms.dual_kernel import dual_batch_norm, reference_dual_batch_norm
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, ranks, to_single, update_running
from advnorm.norms.route import RoutedLayer
from advnorm.norms.standard import NORMS, BatchNorm, Norm


class DualNorm(RoutedLayer):
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
        x = to_single(input)
        one, other = self.route.split(x)
        given = self._given(self.clean, one), self._given(self.adversarial, other)
        weight, bias = self._affine(x)
        by = dual_batch_norm if self.fused else reference_dual_batch_norm
        gated = by(x, len(one), given, weight, bias, self.eps)
        for branch, rows, moments in zip(
            (self.clean, self.adversarial), (one, other), gated.moments, strict=True
        ):
            if len(rows) and updates_running(branch):
                update_running(branch, moments)
        if self._terms is not None:
            self._terms.append(F.softplus(-gated.odds).sum() / len(input))
        return gated.output.to(input.dtype)

    def _given(self, branch: BatchNorm, rows: Tensor) -> Moments | None:
        """Return a domain's moments, or None for those of its rows on this rank."""
        branch._check_input_dim(rows)
        if len(rows) and uses_batch(branch):
            alone = rows.numel() <= self.clean.num_features
            apart = alone or (branch.sync and ranks() > 1)
            return measure_moments(rows, sync=branch.sync) if apart else None
        mean, var = branch.running_mean, branch.running_var
        assert mean is not None and var is not None
        return Moments(to_single(mean), to_single(var), 0)

    def _affine(self, x: Tensor) -> tuple[Tensor, Tensor]:
        one = x.new_ones(self.clean.num_features)
        weight = one if self.weight is None else to_single(self.weight)
        return weight, 0 * one if self.bias is None else to_single(self.bias)


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
