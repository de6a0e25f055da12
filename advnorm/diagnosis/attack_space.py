"""In which space images are changed: that of pixels, or behind the standardization."""

from typing import Literal, NamedTuple

from torch import Tensor, nn

Space = Literal["pixels", "normalized"]
"""``normalized``: the images that the first layer has standardized (galloway2019, J.1)."""

NO_STOP = 2.0
"""A margin of the softmax that no image reaches."""


class AttackSpace(NamedTuple):
    """A model as a function of the images that are changed."""

    model: nn.Module
    """Maps them to logits."""
    standardize: nn.Module
    """Maps pixels to them."""

    def pixel_scale(self, pixels: Tensor) -> Tensor:
        """Return how many pixels' units one unit is, for each image."""
        deviations = [x.flatten(1).std(1) for x in (pixels, self.standardize(pixels))]
        return deviations[0] / deviations[1].clamp_min(1e-12)


def attack_space(model: nn.Module, space: Space) -> AttackSpace:
    """Return the model in a space.

    Where each image is standardized by its own moments, steps of a fixed length in pixels
    are rescaled by the layer, and a large image cannot saturate the model. Behind that
    layer neither is so.
    """
    if space == "pixels":
        return AttackSpace(model, nn.Identity())
    first = getattr(model, "standardize", None)
    if not isinstance(model, nn.Sequential) or first is not model[0]:
        raise ValueError(
            "space=normalized is for models that standardize first, those of recipes with "
            "model.standardize=data or per_image: set space=pixels"
        )
    return AttackSpace(model[1:], first)
