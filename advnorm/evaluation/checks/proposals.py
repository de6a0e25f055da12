"""The slot that an audit's findings call for, as a line of code."""

from collections.abc import Collection, Sequence

from advnorm.evaluation.checks.context import CHECKS, AuditContext, Finding
from advnorm.evaluation.checks.layer_signs import LayerSigns

_FLAT = frozenset({"saturated_loss", "tiny_logits", "zero_gradients", "softmax_output"})
_OTHER_MODEL = frozenset(
    {"grad_mode_dependent", "uninformative_scores", "one_hot_output", "stateful"}
)
_RUGGED = frozenset(
    {
        *("rugged_scores", "unstable_predictions", "black_box_stronger"),
        *("noise_stronger", "decisions_stronger", "piecewise_constant"),
    }
)
_DRAWS = 20
_LOSS = "loss='margin'"
_IN_FORWARD = "make the step in forward a layer of its own, and name it in adapt"
_FUNCTION = "surrogate: a differentiable function of the layer's output shape"
_NETWORK = "network: the model without what the flags name"
_ALIKE = 3
"""Layers of a class that are named one by one; more are named by their class."""


@CHECKS.register("masking_layers")
def masking_layers(context: AuditContext) -> Finding:
    """Ask whether a layer, called alone, jumps, or has no or a wrong gradient."""
    masking = [signs for signs in context.layer_signs if signs.sign != "random"]
    named = ", ".join(f"{s.name or 'forward'} ({s.kind}) {_SAYS[s.sign]}" for s in masking)
    return Finding(
        bool(masking),
        f"{named or 'no layer'}: replace the backward pass in the search (adapt=)",
        {"layers": float(len(masking))},
    )


_SAYS = {"jumps": "jumps", "cut": "cuts the gradient", "wrong": "has a wrong gradient"}


def propose(signs: Sequence[LayerSigns], flagged: Collection[str]) -> str:
    """Return the line of code with which a search sees past the findings, or ``""``.

    >>> propose([LayerSigns("0", "Quantize", "jumps", True)], ["piecewise_constant"])
    "advnorm.evaluate(..., adapt={'0': 'identity'})"
    """
    flags = set(flagged)
    masking = [s for s in signs if s.sign != "random"]
    layers, missing = _layers([s for s in masking if s.name])
    random = "randomized" in flags or any(s.sign == "random" for s in signs)
    in_forward = any(not s.name for s in masking) or (
        not masking and "wrong_gradients" in flags
    )
    wanted = {
        f"layers={{{', '.join(layers)}}}": bool(layers),
        f"draws={_DRAWS}": random,
        f"draws={_DRAWS}, noise=threat.eps / 4": not random
        and not masking
        and bool(flags & _RUGGED),
        _LOSS: bool(flags & _FLAT),
        "model=network": bool(flags & _OTHER_MODEL),
    }
    parts = [text for text, wants in wanted.items() if wants]
    notes = {
        _IN_FORWARD: in_forward,
        _FUNCTION: missing,
        _NETWORK: "model=network" in parts,
    }
    comment = next((text for text, holds in notes.items() if holds), "")
    if "batch_dependent" in flags:
        return "advnorm.evaluate(..., statistics='batch', batch_size=len(images))"
    if not parts:
        return comment
    takes_loss = ", conditions=['apgd-100']" if _LOSS in parts else ""
    only_layers = len(parts) == 1 and bool(layers)
    adapt = parts[0].removeprefix("layers=") if only_layers else _adaptation(parts)
    end = f"  # {comment}" if comment else ""
    return f"advnorm.evaluate(...{takes_loss}, adapt={adapt}){end}"


def _adaptation(parts: Sequence[str]) -> str:
    return f"advnorm.evaluation.Adaptation({', '.join(parts)})"


def _layers(signs: Sequence[LayerSigns]) -> tuple[list[str], bool]:
    """Return the entries of a mapping, and whether some need a function of the user's."""
    entries: dict[str, str] = {}
    for layer in signs:
        alike = sum(other.kind == layer.kind for other in signs)
        key = layer.kind if alike > _ALIKE else layer.name
        entries[key] = "'identity'" if layer.same_shape else "surrogate"
    texts = [f"{key!r}: {value}" for key, value in entries.items()]
    return texts, "surrogate" in entries.values()
