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
    flags, parts, comment = set(flagged), list[str](), ""
    masking = [s for s in signs if s.sign != "random"]
    layers, missing = _layers([s for s in masking if s.name])
    if layers:
        parts.append(f"layers={{{', '.join(layers)}}}")
    if missing:
        comment = "  # surrogate: a differentiable function of the layer's output shape"
    if any(not s.name for s in masking) or (not masking and "wrong_gradients" in flags):
        comment = "  # make the step in forward a layer of its own, and name it in adapt"
    if "randomized" in flags or any(s.sign == "random" for s in signs):
        parts.append(f"draws={_DRAWS}")
    elif not masking and flags & _RUGGED:
        parts.append(f"draws={_DRAWS}, noise=threat.eps / 4")
    if flags & _FLAT:
        parts.append("loss='margin'")
    if "batch_dependent" in flags:
        parts.append("batch=len(images)")
    if flags & _OTHER_MODEL:
        parts.append("model=network")
        comment = comment or "  # network: the model without what the flags name"
    if not parts:
        return comment.strip(" #")
    takes_loss = ", conditions=['apgd-100']" if "loss='margin'" in parts else ""
    only_layers = len(parts) == 1 and bool(layers)
    adapt = parts[0].removeprefix("layers=") if only_layers else _adaptation(parts)
    return f"advnorm.evaluate(...{takes_loss}, adapt={adapt}){comment}"


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
