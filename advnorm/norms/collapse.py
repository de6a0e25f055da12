"""Replace the norms of a model by PyTorch's batch norms, those of one branch."""

from copy import deepcopy

import torch
from torch import nn

from advnorm.norms.branched import BranchedNorm
from advnorm.norms.dual import DualNorm
from advnorm.norms.route import DOMAINS, Domain
from advnorm.norms.standard import BatchNorm
from advnorm.norms.swap import refuse_lazy, refuse_losses, refuse_ties, swap_layers
from advnorm.norms.takeover import copy_affine, copy_statistics

_TORCH_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def collapse(model: nn.Module, domain: Domain = "adversarial") -> nn.Module:
    """Return a copy of ``model`` with plain PyTorch batch norms of one branch.

    In evaluation it computes what ``model`` computes under
    ``route(model, domain=domain)``, and its norms need nothing of advnorm. A dual layer
    whose two sets of moments differ has no equivalent batch norm and is refused by name.
    """
    if domain not in DOMAINS:
        raise ValueError(f"no domain {domain!r}; there are: {', '.join(DOMAINS)}")

    def swap(path: str, parent: nn.Module, layer: nn.Module) -> nn.Module | None:
        if not isinstance(layer, BatchNorm | DualNorm | BranchedNorm):
            return None
        for inner in layer.modules():
            refuse_losses(path, inner)
        source = _branch(path, layer, domain)
        affine = layer if isinstance(layer, DualNorm) else source
        dims = [bn.dims for bn in layer.modules() if isinstance(bn, BatchNorm) and bn.dims]
        if not dims:
            raise ValueError(
                f"layer {path!r} has had no input, so it is unknown whether it is 1-D or "
                "2-D: run the model once before you collapse it"
            )
        plain = _TORCH_NORMS[dims[0]](
            source.num_features,
            eps=source.eps,
            momentum=source.momentum,
            affine=affine.weight is not None,
        )
        copy_statistics(source, plain)
        copy_affine(affine, plain)
        return plain.train(source.training)

    refuse_ties(model)
    refuse_lazy(model)
    return swap_layers(deepcopy(model), swap)[0]


def _branch(path: str, layer: nn.Module, domain: Domain) -> BatchNorm:
    """Return the batch norm of a layer in one domain."""
    if isinstance(layer, BranchedNorm):
        return layer.branch(domain)
    if isinstance(layer, BatchNorm):
        return layer
    assert isinstance(layer, DualNorm)
    pairs = zip(layer.clean.buffers(), layer.adversarial.buffers(), strict=True)
    if not all(torch.equal(a, b) for a, b in pairs):
        raise NotImplementedError(
            f"layer {path!r} is a DualNorm whose gate depends on the input: no plain batch "
            "norm computes the same"
        )
    return layer.clean
