"""How two domains pass through one model: one after the other, or as one batch."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from advnorm import norms

Batching = Literal["sequential", "concatenated"]


class DomainLogits(NamedTuple):
    """The logits of both domains, and the likelihood loss of dual norms (else 0)."""

    clean: Tensor
    adversarial: Tensor
    likelihood: Tensor


def forward_domains(
    model: nn.Module, clean: Tensor, adversarial: Tensor, *, batching: Batching
) -> DomainLogits:
    """Run both domains in ``train`` mode (sitawarin2021, section 3.1).

    - ``sequential``: each domain is normalized by its own batch moments, and one set of
      running statistics is moved twice a step, by each in turn.
    - ``concatenated``: one batch; its mixed moments normalize it and move the running
      statistics once.

    Domain-aware norms read the route; for norms that do not look at the batch both are the
    same.
    """
    if batching not in ("sequential", "concatenated"):
        raise ValueError(f"batching is sequential or concatenated, not {batching!r}")
    with norms.mode(model, "train"), norms.likelihood(model) as terms:
        if batching == "sequential" or not len(clean):
            one = _one(model, clean, "clean")
            other = _one(model, adversarial, "adversarial")
        else:
            with norms.route(model, clean=len(clean)):
                logits = model(torch.cat([clean, adversarial]))
            one, other = logits[: len(clean)], logits[len(clean) :]
    likelihood = torch.stack(terms).sum() if terms else other.new_zeros(())
    return DomainLogits(one, other, likelihood)


def _one(model: nn.Module, images: Tensor, domain: norms.Domain) -> Tensor:
    if not len(images):
        return images.new_zeros(0)
    with norms.route(model, domain=domain):
        logits: Tensor = model(images)
    return logits
