r"""Dual batch norm: a Gaussian gate weighs two sets of statistics (sitawarin2021, 5, F)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import ranks
from advnorm.norms.dual_kernel import dual_batch_norm, reference_dual_batch_norm
from advnorm.norms.kernel_tools import affine_parameters
from advnorm.norms.mixture import TwoBatchNorms
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import Moments, measure_moments, to_single, update_running
from advnorm.norms.standard import BatchNorm, register_layer


@register_layer("dual")
class DualNorm(TwoBatchNorms):
    r"""Dual batch norm (DBN, sitawarin2021): two sets of moments and a Gaussian gate.

    Each position is normalized by both domains' moments, weighted by the posterior of each
    domain. At every position, :math:`x \in \mathbb{R}^C` (Eqns. 10-20):

    .. math::
        \hat x = p \frac{x - \mu_{cl}}{\sigma_{cl}}
        + (1 - p) \frac{x - \mu_{adv}}{\sigma_{adv}}, \qquad
        p = \operatorname{sigmoid}\bigl(\log \mathcal N(x \mid \mu_{cl}, \sigma_{cl}^2)
        - \log \mathcal N(x \mid \mu_{adv}, \sigma_{adv}^2)\bigr)

    then :math:`w \odot \hat x + b` with shared :math:`w, b`; :math:`\sigma^2` includes the
    constant c. The gate is part of the model: gradients pass through it. In training the
    moments of a domain are those of its rows in the batch, or the running ones if the batch
    has no such rows. In evaluation no route is needed.

    ``likelihood`` says how the loss of Eqn. 21 is reduced (:func:`likelihood`): the paper
    sums it over positions, so that its weight grows with the image and with the channels,
    over which a log density adds up. ``mean`` divides by the number of values, so that one
    weight fits small and large networks.
    """

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        sync: bool = False,
        likelihood: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum, affine=False, sync=sync)
        self.eps = eps
        self.likelihood = likelihood
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self._terms: list[Tensor] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``(batch, features, ...)``, each position by its own gate."""
        x = to_single(input)
        clean, adversarial = self.route.split(x)
        domain_moments = (
            self._fixed_moments(self.clean, clean),
            self._fixed_moments(self.adversarial, adversarial),
        )
        like = x.new_empty(self.clean.num_features)
        weight, bias = affine_parameters(self.weight, self.bias, like)
        kernel = dual_batch_norm if self.fused else reference_dual_batch_norm
        gated = kernel(x, len(clean), domain_moments, weight, bias, self.eps)
        for branch, rows, moments in zip(
            (self.clean, self.adversarial),
            (clean, adversarial),
            gated.moments,
            strict=True,
        ):
            if len(rows) and updates_running(branch):
                update_running(branch, moments)
        if self._terms is not None:
            nats = F.softplus(-gated.odds).sum() / len(input)
            self._terms.append(nats / x[0].numel() if self.likelihood == "mean" else nats)
        return gated.output.to(input.dtype)

    def _fixed_moments(self, branch: BatchNorm, rows: Tensor) -> Moments | None:
        """Return a domain's moments, or None if the kernel is to measure its rows."""
        branch._check_input_dim(rows)
        if len(rows) and uses_batch(branch):
            single_value = rows.numel() <= self.clean.num_features  # refused if measured
            synced = branch.sync and ranks.size() > 1
            if single_value or synced:
                return measure_moments(rows, sync=branch.sync)
            return None
        mean, var = branch.running_mean, branch.running_var
        assert mean is not None and var is not None
        return Moments(to_single(mean), to_single(var), 0)


@contextmanager
def likelihood(model: nn.Module) -> Iterator[list[Tensor]]:
    r"""Collect the likelihood loss of every dual layer that runs (Eqn. 21).

    .. math::
        L = -1\{x \in cl\} \log p_{cl} - 1\{x \in adv\} \log (1 - p_{cl})

    summed over positions, or its mean over positions and channels where a layer has
    ``likelihood=mean``: one term per layer and pass. The sum over layers is ``sum(terms)``.
    The list stays empty for a model without dual layers.
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
