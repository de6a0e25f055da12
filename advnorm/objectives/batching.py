"""Forward passes of two domains: one after the other, or as one concatenated batch."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from advnorm import norms

Batching = Literal["sequential", "concatenated"]
"""Whether clean and adversarial images pass one after the other, or in one batch."""


class DomainLogits(NamedTuple):
    """The logits of both domains, and the likelihood loss of dual norms (0 without any)."""

    clean: Tensor
    adversarial: Tensor
    likelihood: Tensor


def forward_domains(
    model: nn.Module, clean: Tensor, adversarial: Tensor, *, batching: Batching
) -> DomainLogits:
    """Run both domains in ``train`` mode (sitawarin2021, section 3.1).

    - ``sequential``: each domain is normalized by its own batch moments, and one set of
      running statistics is updated twice per step, once by each domain.
    - ``concatenated``: one batch, whose mixed moments normalize it and update the running
      statistics once.

    Domain-aware norms use the route. For norms that do not depend on the batch both give
    the same.
    """
    if batching not in ("sequential", "concatenated"):
        raise ValueError(
            f"batching must be 'sequential' or 'concatenated', not {batching!r}"
        )
    with norms.mode(model, "train"), norms.likelihood(model) as terms:
        if batching == "sequential" or not len(clean):
            clean_logits = _forward(model, clean, "clean")
            adversarial_logits = _forward(model, adversarial, "adversarial")
        else:
            with norms.route(model, clean=len(clean)):
                logits = model(torch.cat([clean, adversarial]))
            clean_logits, adversarial_logits = logits[: len(clean)], logits[len(clean) :]
    likelihood = torch.stack(terms).sum() if terms else adversarial_logits.new_zeros(())
    return DomainLogits(clean_logits, adversarial_logits, likelihood)


def _forward(model: nn.Module, images: Tensor, domain: norms.Domain) -> Tensor:
    if not len(images):
        return images.new_zeros(0)
    with norms.route(model, domain=domain):
        logits: Tensor = model(images)
    return logits
