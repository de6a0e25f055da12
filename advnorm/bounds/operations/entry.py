"""The registry of operations: one :class:`Operation` each, with its rules and traits.

The entries are in the other files of this package, with their rules beside them. A pass
over a graph never asks for a node's type: it asks its entry for a rule or a trait. So a new
operation is one entry, and a model with an operation that has none is refused by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.operations.arguments import Argument, LayerSetting
from advnorm.bounds.relax import Relaxation


class Call(NamedTuple):
    """The arguments of a node's call; values that depend on the images are boxes."""

    target: Any
    """The layer; or the function to call on tensors."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def box(self) -> Box:
        """The box of a layer's input, or of a function's first argument."""
        box = self.args[0]
        assert isinstance(box, Box)
        return box

    @property
    def boxes(self) -> list[Box]:
        """All boxes among the arguments, in order."""
        return [v for v in leaves((self.args, self.kwargs)) if isinstance(v, Box)]


IntervalRule = Callable[..., Box]
"""Takes the target, then what the model calls it with: the box of the output."""
BackwardRule = Callable[[Call, Tensor, Any], list[LinearForms]]
"""Takes coefficients of the output to linear forms of each input, which add up."""
SizeRule = Callable[[Call], Tensor]
"""Gives the sizes of the terms that each output is the sum of."""
RoundingRule = Callable[[Call, Box], Tensor]
"""Gives the same, from the box of the output too, where rounding is measured."""
AffineRule = Callable[[Any, Box], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that models may use: what it stands for, its rules and its traits.

    An entry of functions alone is a function. One of layers may have functions that are the
    first layer in another spelling (``F.relu``).
    """

    layers: tuple[type[nn.Module], ...] = ()
    """Layer types; they match exactly."""
    functions: tuple[str, ...] = ()
    """Names of torch functions and of tensor methods; messages use the first."""
    arguments: tuple[Argument, ...] = ()
    """Arguments of the functions behind the tensor, in torch's order."""
    spreads: bool = False
    """The first argument may be several numbers: ``view(2, 3)``."""
    settings: tuple[LayerSetting, ...] = ()
    """Settings of the layers that may have values which the rules are not for."""

    interval: IntervalRule
    backward: BackwardRule | None = None
    """``None``: a backward pass ends here, at the interval bounds of the output."""
    prepare: Callable[[Any, Box], Any] | None = None
    """What the backward rule needs besides coefficients, made once a batch."""
    relaxation: Relaxation | None = None
    """Two lines that hold an activation between them."""
    size: SizeRule | None = None
    """``None``: the sizes of terms begin anew with the output's values."""
    rounding: RoundingRule | None = None
    """``None``: the operation is computed exactly."""
    channel_affine: AffineRule | None = None
    """A factor and a shift per feature, of a norm whose moments are fixed."""

    identity: bool = False
    """In evaluation it returns its input."""
    flattens: bool = False
    """It keeps the order of values, and features apart."""
    is_view: bool = False
    """Its output may share memory with its input."""
    is_entrywise: bool = False
    """Each output is an affine function of one input, and each input has one output."""
    is_mixing: bool = False
    """Each output is an affine function that reads no input twice."""
    is_product: bool = False
    """A linear layer or a convolution: weights times inputs, plus a bias."""
    needs_bounds: bool = False
    """Tighter bounds of its input give a tighter backward rule."""
    bends_at_zero: bool = False
    """Linear on both sides of zero, and nowhere else bent."""
    zeroes_negatives: bool = False
    """Zero wherever its input is not positive."""

    @property
    def name(self) -> str:
        """The name in messages."""
        return next(iter([*self.functions, *(kind.__name__ for kind in self.layers)]), "")


def _no_rule(*args: Any, **kwargs: Any) -> Box:
    raise NotImplementedError("no entry")


UNKNOWN = Operation(interval=_no_rule)
"""The entry of what has none: no rules and no traits."""
LAYERS: dict[type[nn.Module], Operation] = {}
FUNCTIONS: dict[str, Operation] = {}


def register(operation: Operation) -> Operation:
    """Enter an operation into the registry."""
    taken = [kind.__name__ for kind in operation.layers if kind in LAYERS]
    taken += [name for name in operation.functions if name in FUNCTIONS]
    if taken:
        raise ValueError(f"there is an entry for {', '.join(taken)} already: edit that one")
    LAYERS.update(dict.fromkeys(operation.layers, operation))
    FUNCTIONS.update(dict.fromkeys(operation.functions, operation))
    return operation


def leaves(value: Any) -> list[Any]:
    """Return the values in nested arguments, in order."""
    if isinstance(value, Box) or not isinstance(value, tuple | list | dict):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in leaves(item)]
