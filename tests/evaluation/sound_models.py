"""Networks of every family and norm, untrained and trained: none of them hides anything.

Used by tests and by ``benchmarks/masked.py``, which count the flags that they raise.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.models import build, options
from advnorm.norms import NORMS

FAMILIES = {
    "mlp": {"width": 64},
    "linear": {},
    "lenet5": {},
    "cnn_cleverhans": {},
    "cnn_small": {"width": 8},
    "cnn_medium": {"width": 8},
    "preact_resnet18": {"width": 8},
    "resnet20": {"width": 8},
    "resnet18": {"width": 8},
    "vgg8": {"width": 8},
    "wide_resnet": {"depth": 10, "widen": 1},
    "fixup_resnet20": {"width": 8},
}
STEPS = 120


class Sound(NamedTuple):
    """A network and test samples of its kind."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor


def digits() -> tuple[Tensor, Tensor]:
    """Return scikit-learn's digits, enlarged to three channels of 32x32 pixels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    images = F.interpolate(images, size=32, mode="bilinear").repeat(1, 3, 1, 1)
    return images, torch.tensor(data.target)


def zoo(families: list[str] | None = None, count: int = 64) -> Iterator[Sound]:
    """Yield every family with every norm that it takes: untrained, then trained."""
    images, labels = digits()
    test, train = slice(count), slice(400, None)
    for family in families or FAMILIES:
        for norm in NORMS if not family.startswith("fixup") else ["none"]:
            model = _network(family, norm, images)
            if model is None:
                continue
            yield Sound(f"{family} {norm} untrained", model, images[test], labels[test])
            _train(model, images[train], labels[train])
            yield Sound(f"{family} {norm} trained", model, images[test], labels[test])


def _network(family: str, norm: str, images: Tensor) -> nn.Module | None:
    """Return a network, or ``None`` where the norm does not fit its layers."""
    torch.manual_seed(0)
    settings = {k: v for k, v in FAMILIES[family].items() if k in options(family)}
    model = build(
        family, shape=(3, 32, 32), classes=10, norm=NORMS[norm](), options=settings
    )
    try:
        with torch.no_grad():
            model.eval()(images[:4])
    except ValueError:  # an instance norm of a single value
        return None
    return model


def _train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Train for a moment, on clean images."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for step in range(STEPS):
        rows = torch.arange(step * 32, step * 32 + 32) % len(images)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
