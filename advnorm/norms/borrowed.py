r"""Borrowed norm: one domain's moments normalize both domains (sridhar2021, section 4)."""

from torch import Tensor

from advnorm import ranks
from advnorm.norms.kernel_tools import affine_parameters
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import to_single, update_running
from advnorm.norms.route import Domain, RoutedLayer
from advnorm.norms.shared_moments_kernel import AffineRows, shared_moments_batch_norm
from advnorm.norms.standard import BatchNorm, register_layer


@register_layer("borrowed")
class BorrowedNorm(BatchNorm, RoutedLayer):
    r"""Borrowed moments (sridhar2021, section 4): one domain's moments normalize both.

    .. math::
        \hat x = \gamma \frac{x - \mu_l}{\sqrt{\sigma_l^2 + c}} + \beta, \qquad
        l = \text{clean or adversarial}

    for the samples of both domains, as IBP does with the clean batch's moments (Alg. 1).
    Only the lender's moments update the running statistics. Gradients reach the lender's
    samples through the moments. A batch of one domain is normalized by its own moments.
    With running statistics this is batch norm.
    """

    def __init__(
        self,
        num_features: int,
        *,
        lender: Domain = "clean",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        sync: bool = False,
    ) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum, affine=affine, sync=sync)
        if lender not in ("clean", "adversarial"):
            raise ValueError(f"lender must be 'clean' or 'adversarial', not {lender!r}")
        self.lender = lender

    def forward(self, input: Tensor) -> Tensor:
        """Normalize all rows by the lender's moments."""
        rows = self.route.clean_rows(len(input))
        if not uses_batch(self) or rows in (0, len(input)):
            return super().forward(input)
        lender = slice(rows) if self.lender == "clean" else slice(rows, len(input))
        lender_rows = input[lender]
        synced = self.sync and ranks.size() > 1
        single_value = lender_rows.numel() <= self.num_features  # refused by moments()
        if synced or single_value or not self.fused:
            return self.normalize(input, self.moments(lender_rows))
        return self._borrowed(to_single(input), lender).to(input.dtype)

    def _borrowed(self, input: Tensor, lender: slice) -> Tensor:
        self._check_input_dim(input)
        like = input.new_empty(self.num_features)
        weight, bias = affine_parameters(self.weight, self.bias, like)
        every_row = AffineRows(slice(len(input)), weight, bias)
        output, moments = shared_moments_batch_norm(input, lender, [every_row], self.eps)
        if updates_running(self):
            update_running(self, moments)
        return output
