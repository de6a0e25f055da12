"""Does a model answer for an image alone? Certificates are of models that do."""

import torch
from torch import Tensor, nn

from advnorm.certify.box import InputSet

ROWS = 2


def refuse_company(model: nn.Module, clean: Tensor, threat: InputSet) -> None:
    """Refuse a model whose answer for an image depends on the others, or on chance.

    One image is asked about in the company of a few dark ones, and of more light ones.
    Rules look at one function at a time, and some mix samples without a trace of it.
    """
    dtype = clean.dtype if clean.is_floating_point() else torch.get_default_dtype()
    first = clean[:1].to(dtype)
    dark, light = (torch.full_like(first, value) for value in threat.bounds)
    one, other = (
        model(torch.cat([first, *company]))[0]
        for company in ([dark] * ROWS, [light] * (ROWS + 1))
    )
    near = torch.finfo(one.dtype).eps ** 0.5 * one.abs().amax()
    if bool((one - other).abs().amax() > near):
        raise NotImplementedError(
            "the model's answer for one image depends on the others of the batch, or on "
            "chance: nothing holds for the image alone"
        )
