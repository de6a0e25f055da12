"""Does a model answer for an image alone? Certificates are of models that do."""

import torch
from torch import Tensor, nn

from advnorm.certify.box import InputSet

ROWS = 5


def refuse_company(model: nn.Module, clean: Tensor, threat: InputSet) -> None:
    """Refuse a model whose answer for an image depends on the others, or on chance.

    One image is asked about in the company of dark ones, of light ones, and of one more.
    Rules look at one function at a time, and some mix samples without a trace of it.
    """
    dtype = clean.dtype if clean.is_floating_point() else torch.get_default_dtype()
    first = clean[:1].to(dtype)
    dark, light = (torch.full_like(first, value) for value in threat.bounds)
    asked = ([dark] * ROWS, [light] * ROWS, [dark] * (ROWS + 1))
    one, *others = (model(torch.cat([first, *company]))[0] for company in asked)
    near = torch.finfo(one.dtype).eps ** 0.5 * one.abs().amax()
    if any(bool((one - other).abs().amax() > near) for other in others):
        raise NotImplementedError(
            "the model's answer for one image depends on the others of the batch, or on "
            "chance: nothing holds for the image alone"
        )
