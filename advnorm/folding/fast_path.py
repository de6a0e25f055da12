"""The fast path of a search: the logits of a model, by passes of its folded form.

It is used only where it is equal. A model that cannot be traced, that has hooks, drops
values at random, normalizes by batch statistics or changes itself in a pass is searched as
it is, and so is one whose folded form has other logits on the first images. Every choice is
a function of the model and the images, never of a clock: a resumed run repeats it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from advnorm.bounds.layer_checks import refuse_altered
from advnorm.bounds.operations.entry import LAYERS
from advnorm.bounds.tracing import trace
from advnorm.folding.equality import (
    COARSE,
    close,
    has_gradients,
    moves_state,
    same_logits,
)
from advnorm.folding.feature_maps import is_fixed
from advnorm.folding.plan import FoldedModel, FoldingPlan, make_plan
from advnorm.folding.steps import Layout

SearchPrecision = Literal["float32", "bfloat16"]
"""Of the passes of a search; ``float32`` is the model's own precision."""
LogitsFn = Callable[[Tensor], Tensor]
CHECKED = 4
"""Images whose logits are compared."""


class _CachedPlan(NamedTuple):
    """A plan, or the fact that there is none, and what it was made of."""

    plan: FoldingPlan | None
    modules: list[nn.Module]
    training: list[bool]


_CACHE: WeakKeyDictionary[nn.Module, _CachedPlan] = WeakKeyDictionary()


def fast_logits(
    model: nn.Module, images: Tensor, precision: SearchPrecision = "float32"
) -> LogitsFn | None:
    """Return a function with the model's logits whose passes are fast; ``None`` if none is.

    It is that of the present weights, statistics and route. ``images`` are a few of those
    that will be searched. With ``bfloat16`` all its passes are in that precision, and the
    folded form is compared in the model's own.
    """
    half = precision == "bfloat16"
    if not _is_suitable(model, images, half=half):
        return None
    few = images[:CHECKED].detach().clone()  # a model may work on them in place
    with torch.autocast(images.device.type, enabled=False):
        return _equal_form(model, few, half=half)


def _is_suitable(model: nn.Module, images: Tensor, *, half: bool) -> bool:
    """Look at what needs no pass."""
    if images.device.type == "meta":  # shapes alone, as in a forecast of costs
        return False
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    own = kinds == {images.dtype} and images.dtype in (torch.float32, torch.float64)
    under_autocast = torch.is_autocast_enabled(images.device.type) and not half
    compiled = hasattr(model, "_orig_mod")
    return own and len(images) > 0 and not (under_autocast or compiled)


def _equal_form(model: nn.Module, few: Tensor, *, half: bool) -> LogitsFn | None:
    for fresh in (False, True):  # an attribute that forward looks at may have changed
        plan = _plan_of(model, few, fresh=fresh)
        if plan is None or not all(map(is_fixed, plan.norms)):
            return None
        folded = plan.bind(model, layout_of(plan, few))
        try:
            if same_logits(model, folded, few):
                return _halved(plan, model, folded, few) if half else folded
        except Exception:  # the model itself will say what is wrong
            return None
    return None


def layout_of(plan: FoldingPlan, images: Tensor) -> Layout:
    """Return the precision of the images, and the memory layout.

    On a CPU convolutions of colour images in single precision are faster channels-last,
    those by kernels above 3x3 are not. A rule and no trial decides, because a trial would
    not come out alike in a resumed run.
    """
    colour = images.ndim == 4 and images.shape[1] > 1
    on_cpu = images.device.type == "cpu" and images.dtype == torch.float32
    small = all(max(layer.kernel_size) <= 3 for layer in plan.convolutions)
    return Layout(images.dtype, bool(plan.convolutions) and colour and on_cpu and small)


def _halved(
    plan: FoldingPlan, model: nn.Module, folded: FoldedModel, few: Tensor
) -> LogitsFn | None:
    """Return the passes in bfloat16, outside of autocast."""
    narrow = plan.bind(model, folded.layout._replace(dtype=torch.bfloat16))

    def logits_fn(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, enabled=False):
            return narrow(images)

    with torch.no_grad():
        return logits_fn if close(folded(few), narrow(few), COARSE) else None


def _plan_of(model: nn.Module, few: Tensor, *, fresh: bool) -> FoldingPlan | None:
    """Return the plan of a model, made anew if its layers or flags changed."""
    modules = list(model.modules())
    training = [module.training for module in modules]
    cached = _CACHE.get(model)
    try:
        refuse_altered(model, lambda layer: type(layer) in LAYERS)
    except NotImplementedError:
        return None
    if cached and not fresh and cached.training == training and _same(cached, modules):
        return cached.plan
    plan = _make(model, few)
    _CACHE[model] = _CachedPlan(plan, modules[1:], training)
    return plan


def _make(model: nn.Module, few: Tensor) -> FoldingPlan | None:
    if len(list(model.modules())) < 2:
        return None  # a bare layer has nothing to fold
    try:
        if moves_state(model, few):
            return None
        plan = make_plan(trace(model), few)
        if plan is None or not all(map(is_fixed, plan.norms)):
            return plan
        folded = plan.bind(model, layout_of(plan, few))
        return plan if has_gradients(folded, few) else None
    except Exception:  # a forward of the user's may raise anything when it is traced
        return None


def _same(cached: _CachedPlan, modules: list[nn.Module]) -> bool:
    return len(cached.modules) == len(modules) - 1 and all(
        a is b for a, b in zip(cached.modules, modules[1:], strict=True)
    )
