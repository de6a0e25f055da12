"""Checks of what an evaluation takes: each refusal is one sentence that says what to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from advnorm.threat import Bounds, Threat, check_threat


def check_images(images: Tensor, bounds: Bounds) -> None:
    """Refuse images outside of the bounds; standardized ones get their own sentence.

    The bounds are rounded as the images are: 0.3 in single precision is inside (0, 0.3).
    """
    if not len(images):
        raise ValueError("there are no images: give at least one")
    if not images.is_floating_point():
        raise ValueError(
            f"images are floats in [{bounds[0]:g}, {bounds[1]:g}], not {images.dtype}: "
            f"for bytes, divide by 255{_channels_hint(images)}"
        )
    low, high = images.amin().item(), images.amax().item()
    if not torch.isfinite(images).all():
        raise ValueError("some images hold NaN or infinity: remove or repair them")
    lowest, highest = torch.tensor(bounds, dtype=images.dtype).tolist()
    if low >= lowest and high <= highest:
        return
    where = f"images reach from {low:.3g} to {high:.3g}, outside of the bounds "
    where += f"[{bounds[0]:g}, {bounds[1]:g}]"
    if low < bounds[0] and abs(images.mean().item()) < 1 and high < 10:
        raise ValueError(
            f"{where}, and look standardized: undo that, and make standardization the "
            "model's first layer (advnorm.models.Standardize)"
        )
    raise ValueError(f"{where}: scale them into it (divide bytes by 255), or set bounds")


def refuse_misplaced_threat(labels: object) -> None:
    """Refuse a threat in the place of labels, as in ``evaluate(model, loader, threat)``."""
    if hasattr(labels, "eps") and hasattr(labels, "bounds"):
        raise ValueError(
            f"the third argument is labels, not {labels}: name the threat, as in "
            f"evaluate(model, loader, threat={labels})"
        )


@contextmanager
def explain_shape(images: Tensor) -> Iterator[None]:
    """Say in one sentence that a model does not take images of this shape."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).partition("\n")[0]
        if not any(word in text for word in ("shape", "size", "channels", "dimension")):
            raise
        raise ValueError(
            f"the model does not take images of shape {tuple(images.shape[1:])}: give "
            f"those of its training{_channels_hint(images)} ({text})"
        ) from error


def _channels_hint(images: Tensor) -> str:
    """Say how to put channels first, where they seem to be last."""
    kinds = (1, 3, 4)
    last = images.ndim == 4 and images.shape[-1] in kinds and images.shape[1] not in kinds
    return ", and put channels first with images.permute(0, 3, 1, 2)" if last else ""


def threats_of(threat: Threat | Sequence[Threat]) -> list[Threat]:
    """Return one threat or several as a list; anything else is refused."""
    threats: list[Threat]
    match threat:
        case [*items]:  # a sequence, but no string
            threats = items
        case single:
            threats = [single]
    if not threats:
        raise ValueError("there are no threats: give at least one, such as Linf(8/255)")
    for each in threats:
        check_threat(each)
    if len({each.bounds for each in threats}) > 1:
        raise ValueError(
            "the threats have different bounds: the images have one range, so evaluate "
            "each range by itself"
        )
    return threats


def one_threat(threat: Threat | None) -> Threat:
    """Return a threat; none, or a list of several, is refused."""
    if threat is None:
        raise ValueError("a threat is missing: pass one, such as threat=Linf(8/255)")
    threats = threats_of(threat)
    if len(threats) > 1:
        raise ValueError(f"give one threat here, not {len(threats)}: call it for each")
    return threats[0]


def check_radius(threat: Threat, shape: Sequence[int]) -> None:
    r"""Refuse a radius larger than the diameter of the box of valid images.

    Images of ``shape``, with d pixels, are at most :math:`h - l` apart in L-inf, which
    ``Linf`` refuses by itself, :math:`\sqrt{d} (h - l)` in L2, :math:`d (h - l)` in L1, and
    d in L0.
    """
    low, high = threat.bounds
    diameter = threat.diameter(shape)
    if threat.eps > diameter:
        raise ValueError(
            f"eps {threat.eps:g} in {threat.name} is larger than the distance between any "
            f"two images of shape {tuple(shape)} in [{low:g}, {high:g}], {diameter:.4g}: "
            "give eps in the units of the images"
        )


def check_count(labels: Tensor, *, count: int) -> None:
    """Refuse labels that are not one class index per image."""
    kinds = (torch.bool, torch.complex64, torch.complex128)
    if labels.is_floating_point() or labels.dtype in kinds or labels.ndim != 1:
        raise ValueError(
            f"labels are class indices of shape (batch,), not {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if len(labels) != count:
        raise ValueError(f"{count} images but {len(labels)} labels: give one per image")


def check_labels(labels: Tensor, *, count: int, classes: int) -> None:
    """Refuse labels that are not one class of the model per image."""
    check_count(labels, count=count)
    labels = labels.long()  # not all integers have a smallest one
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        remedy = "" if low < 0 else ", or give a model of more classes"
        raise ValueError(
            f"labels reach from {low} to {high}, but the model has {classes} classes "
            f"(0 to {classes - 1}): number the labels from 0{remedy}"
        )


def check_logits(logits: Tensor, *, count: int) -> None:
    """Refuse outputs that are not one finite vector of logits per image."""
    if logits.ndim != 2 or len(logits) != count or logits.shape[1] < 2:
        raise ValueError(
            f"the model must return logits of shape ({count}, classes), not "
            f"{tuple(logits.shape)}"
        )
    check_finite(logits)


def check_finite(logits: Tensor) -> None:
    """Refuse logits whose largest one is no prediction."""
    if not torch.isfinite(logits).all():
        raise ValueError(
            "the model returns logits that are NaN or infinite on valid images: its "
            "weights or statistics are damaged, or it overflows"
        )


def check_mode(model: nn.Module) -> None:
    """Refuse a model with a layer in train mode: dropout on, statistics of the batch."""
    for name, layer in model.named_modules():
        if layer.training:
            raise ValueError(
                f"the model is in train mode (layer {name or type(layer).__name__!r}): "
                "call model.eval(), or let train_mode='set' do so for this call"
            )
