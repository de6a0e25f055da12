r"""Has the network collapsed? Dead ReLU units, one predicted class (sridhar2021 A.5).

A rectified unit is dead if :math:`\max(0, h) = 0` for every image, a convolution's channel
if that holds everywhere in every image; a layer is dead if all of its units are. Behind a
dead layer the network can only predict a constant.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from advnorm.diagnosis.common import BATCH, QUIET, frozen_eval, to_floats
from advnorm.diagnosis.registry import question
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

_RECTIFIERS = {F.relu, F.relu6, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


@question("dead")
def dead(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Fraction of dead ReLU units and layers, and of the top class (sridhar2021 A.5)."""
    recorder, logits, parts = ActivationRecorder(), [], torch.split(images, BATCH)
    with frozen_eval(model), torch.no_grad():
        for count, part in enumerate(parts, 1):
            with recorder:
                logits.append(model(part))
            progress.update(count, len(parts), "passes")
    outputs = torch.cat(logits)
    classes = outputs.shape[1]
    shares = outputs.argmax(1).bincount(minlength=classes).double() / len(images)
    layers = [float((~alive).double().mean()) for alive in recorder.layers]
    units = sum(len(alive) for alive in recorder.layers)
    silent = sum(int((~alive).sum()) for alive in recorder.layers)
    return Diagnosis(
        question="dead",
        source="sridhar2021 A.5",
        reading="A layer whose units are all dead passes nothing on: the network then "
        "predicts one class for every image. No bar is a layer whose units all fire.",
        numbers={
            "dead units": silent / units if units else 0.0,
            "dead layers": float(sum(share == 1 for share in layers)),
            "rectified units": float(units),
            "rectified layers": float(len(layers)),
            "most predicted class": float(shares.max()),
            "classes predicted": float((shares > 0).sum()),
        },
        settings={"n": len(images), "classes": classes},
        panels=(
            *_bars("Dead units by depth", "rectified layer, from the input", layers, 1),
            *_bars("Predictions", "class", list(to_floats(shares)), 0),
        ),
    )


class ActivationRecorder(TorchFunctionMode):
    """Records which ReLU units fire in the passes of its block: one mask per layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Tensor] = []
        self._position = 0

    def __enter__(self) -> "ActivationRecorder":
        self._position = 0
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run ``func``, and record its output if it is a ReLU."""
        output = func(*args, **(kwargs or {}))
        if func in _RECTIFIERS and output.ndim > 1:  # else it belongs to no layer
            self._record(output)
        return output

    def _record(self, output: Tensor) -> None:
        fires = (output > 0).movedim(1, 0).flatten(1).any(1)
        if self._position < len(self.layers):
            self.layers[self._position] |= fires
        else:
            self.layers.append(fires)
        self._position += 1


def _bars(title: str, x: str, shares: list[float], first: int) -> tuple[Panel, ...]:
    if not shares:
        return ()
    numbers = tuple(float(first + i) for i in range(len(shares)))
    series = Series(name="share", x=numbers, y=tuple(shares))
    return (Panel(kind="bars", title=title, x=x, y="share", series=(series,)),)
