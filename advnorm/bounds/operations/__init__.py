"""The operations that models may use: one entry each, by topic.

To support a new activation, add one entry::

    register(activation(Swish, interval=valley(-1.28), relaxation=lines, max_slope=1.1))
"""

from advnorm.bounds.operations import (
    activations,
    arithmetic,
    batch_norms,
    linear,
    pooling,
    sample_norms,
    shapes,
    smooth_activations,
)
from advnorm.bounds.operations.activations import activation, increasing, valley
from advnorm.bounds.operations.entry import (
    FUNCTIONS,
    LAYERS,
    UNKNOWN,
    Call,
    Operation,
    register,
)

__all__ = [
    "FUNCTIONS",
    "LAYERS",
    "UNKNOWN",
    "Call",
    "Operation",
    "activation",
    "activations",
    "arithmetic",
    "batch_norms",
    "increasing",
    "linear",
    "pooling",
    "register",
    "sample_norms",
    "shapes",
    "smooth_activations",
    "valley",
]
