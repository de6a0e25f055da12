r"""Affine norm: shared statistics, and parameters of its own for each domain."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import ranks
from advnorm.norms.branched import BranchedNorm
from advnorm.norms.kernel_tools import affine_parameters
from advnorm.norms.mode import updates_running, uses_batch
from advnorm.norms.moments import to_single, update_running
from advnorm.norms.route import Domain
from advnorm.norms.shared_moments_kernel import AffineRows, shared_moments_batch_norm
from advnorm.norms.standard import BatchNorm, affine, register_layer, scale_features


class DomainParameters(nn.Module):
    """The weight and the bias of one domain, one number per feature, or neither."""

    def __init__(self, num_features: int, *, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None


@register_layer("affine")
class AffineNorm(BatchNorm, BranchedNorm):
    r"""Separate affine parameters, shared statistics (Rebuffi et al., ICLR 2023).

    .. math::
        \hat x = \gamma_d \frac{x - \mu}{\sqrt{\sigma^2 + c}} + \beta_d, \qquad
        d \in \{\text{clean}, \text{adversarial}\}

    The moments are those of the whole batch, both domains together, as in batch norm; the
    route gives the domain :math:`d` of each sample. At test time one branch answers, so a
    result must name the branch.
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
        super().__init__(num_features, eps=eps, momentum=momentum, affine=False, sync=sync)
        self.clean = DomainParameters(num_features, affine=affine)
        self.adversarial = DomainParameters(num_features, affine=affine)

    def forward(self, input: Tensor) -> Tensor:
        """Normalize all rows together; scale and shift each by its domain's parameters."""
        self._check_input_dim(input)
        parts = self._parts(len(input))
        if len(parts) == 1:
            return self._one_domain(input, parts[0][1])
        if not uses_batch(self):
            return torch.cat([self._one_domain(input[rows], own) for rows, own in parts])
        synced = self.sync and ranks.size() > 1
        single_value = input.numel() <= self.num_features  # refused by moments()
        if synced or single_value or not self.fused:
            return self.scale(self.normalize(input, self.moments(input)))
        return self._two_domains(to_single(input)).to(input.dtype)

    def scale(self, x: Tensor) -> Tensor:
        """Scale and shift normalized rows by the parameters of their domains."""
        outputs = [
            scale_features(x[rows], own.weight, own.bias)
            for rows, own in self._parts(len(x))
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def domain_parameters(self, domain: Domain) -> DomainParameters:
        """Return the weight and the bias of one domain."""
        return self.clean if domain == "clean" else self.adversarial

    def branch(self, domain: Domain) -> BatchNorm:
        """Return the batch norm of one domain, which shares the tensors of this layer."""
        plain = BatchNorm(
            self.num_features,
            eps=self.eps,
            momentum=self.momentum,
            affine=False,
            sync=self.sync,
        )
        plain._buffers = self._buffers
        own = self.domain_parameters(domain)
        plain.weight, plain.bias = own.weight, own.bias  # type: ignore[assignment]
        plain.affine, plain.dims = own.weight is not None, self.dims
        plain.training, plain.track_running_stats = self.training, self.track_running_stats
        return plain

    def _parts(self, batch: int) -> list[tuple[slice, DomainParameters]]:
        """Return the rows of each domain that has any; the adversarial one if none has."""
        rows = self.route.clean_rows(batch)
        parts = [(slice(rows), self.clean), (slice(rows, batch), self.adversarial)]
        if 0 < rows < batch:
            return parts
        return parts[:1] if rows else parts[1:]

    def _one_domain(self, input: Tensor, own: DomainParameters) -> Tensor:
        """Do what batch norm does, with the parameters of one domain."""
        few = input.numel() <= self.num_features  # refused by moments()
        if uses_batch(self) and (few or (self.sync and ranks.size() > 1)):
            return affine(input, self.moments(input), self.eps, own.weight, own.bias)
        momentum, updates = self.momentum or 0.0, updates_running(self)
        if updates:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        used = updates or not uses_batch(self)
        return F.batch_norm(
            input,
            self.running_mean if used else None,
            self.running_var if used else None,
            own.weight,
            own.bias,
            uses_batch(self),
            momentum,
            self.eps,
        )

    def _two_domains(self, input: Tensor) -> Tensor:
        like = input.new_empty(self.num_features)
        parts = [
            AffineRows(rows, *affine_parameters(own.weight, own.bias, like))
            for rows, own in self._parts(len(input))
        ]
        every_row = slice(len(input))
        output, moments = shared_moments_batch_norm(input, every_row, parts, self.eps)
        if updates_running(self):
            update_running(self, moments)
        return output
