r"""Borrowed moments: one domain's statistics normalize both (sridhar2021, section 4)."""

from functools import partial

from torch import Tensor

from advnorm.norms.borrowed_kernel import borrowed_batch_norm
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import ranks, to_single, update_running
from advnorm.norms.route import Domain, RoutedLayer
from advnorm.norms.standard import NORMS, BatchNorm, Norm


class BorrowedNorm(BatchNorm, RoutedLayer):
    r"""Normalize both domains by the batch moments of the lender, which alone are tracked.

    .. math::
        \hat x = \gamma \frac{x - \mu_l}{\sqrt{\sigma_l^2 + c}} + \beta, \qquad
        l = \text{clean or adversarial}

    for the samples of both domains, as IBP does with the clean batch's moments (Alg. 1).
    Gradients reach the lender's samples through the moments. A batch of one domain alone
    has nobody to borrow from and is normalized by its own moments; with running statistics
    this is batch norm.
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
            raise ValueError(f"the lender is clean or adversarial, not {lender!r}")
        self.lender = lender

    def forward(self, input: Tensor) -> Tensor:
        """Normalize all rows by the lender's moments."""
        rows = self.route.clean_rows(len(input))
        if not uses_batch(self) or rows in (0, len(input)):
            return super().forward(input)
        lender = slice(rows) if self.lender == "clean" else slice(rows, len(input))
        lent = input[lender]
        synced, alone = self.sync and ranks() > 1, lent.numel() <= self.num_features
        if synced or alone or not self.fused:
            return self.normalize(input, self.moments(lent))
        return self._borrowed(to_single(input), lender).to(input.dtype)

    def _borrowed(self, input: Tensor, lender: slice) -> Tensor:
        self._check_input_dim(input)
        one = input.new_ones(self.num_features)
        weight = one if self.weight is None else to_single(self.weight)
        bias = 0 * one if self.bias is None else to_single(self.bias)
        output, moments = borrowed_batch_norm(input, lender, weight, bias, self.eps)
        if updates_running(self):
            update_running(self, moments)
        return output


@NORMS.register("borrowed")
def borrowed(
    *,
    lender: Domain = "clean",
    eps: float = 1e-5,
    momentum: float | None = 0.1,
    affine: bool = True,
    sync: bool = False,
) -> Norm:
    """Borrowed moments (sridhar2021): the lender's moments normalize both domains."""
    return partial(
        BorrowedNorm, lender=lender, eps=eps, momentum=momentum, affine=affine, sync=sync
    )
