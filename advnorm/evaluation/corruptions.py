"""Cells of common corruptions: ``corruption-fog-3``, and ``corruptions`` for all of them.

They judge the prediction on the corrupted image (Hendrycks & Dietterich, 2019); their mean
error is in :mod:`advnorm.report.corruption`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from advnorm.data.corruptions import COLOUR_ONLY, CORRUPTIONS, SEVERITIES, corrupt
from advnorm.draws import Draws
from advnorm.threat import Bounds

Change = Callable[[Tensor, Draws], Tensor]
ALL = "corruptions"
"""The name that stands for every corruption at every severity."""


def expanded(names: Sequence[str], shape: Sequence[int] | None) -> list[str]:
    """Replace :data:`ALL` by its cells, without those that images of ``shape`` cannot have.

    >>> names = expanded(["clean", "corruptions"], (1, 28, 28))
    >>> len(names), names[:3], names[-1]
    (91, ['clean', 'corruption-brightness-1', 'corruption-brightness-2'], \
'corruption-zoom_blur-5')
    """
    grey = shape is not None and len(shape) == 3 and shape[0] != 3
    chosen = [name for name in CORRUPTIONS if not (grey and name in COLOUR_ONLY)]
    every = [f"corruption-{name}-{level}" for name in chosen for level in SEVERITIES]
    return [cell for name in names for cell in (every if name == ALL else [name])]


def corruption(name: str, severity: int, bounds: Bounds) -> Change:
    """Return the change of a batch; an unknown name is refused before any is seen."""
    CORRUPTIONS[name]
    return partial(corrupt, name=name, severity=severity, bounds=bounds)
