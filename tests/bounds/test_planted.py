"""No method certifies a network with a hidden counterexample; faulty rules do."""

from dataclasses import replace

import planted
import pytest
import torch
from entries import change_entry
from planted import (
    ACTIVATIONS,
    CANCELLING,
    FUNCTIONS,
    LAYERS,
    NORMS,
    REFUSED,
    Counts,
    tally,
)
from torch import Tensor, nn

from advnorm.bounds import METHODS, interval, is_certified
from advnorm.bounds.box import Box
from advnorm.bounds.operations import entry
from advnorm.threat import Linf

SEEDS = range(4)
GROUPS = {
    "layers": (LAYERS, 350, 0.75),
    "activations and norms": (ACTIVATIONS | NORMS, 400, 0.6),
    "functions": (FUNCTIONS, 560, 0.75),
    "rounding": (CANCELLING | REFUSED, 850, 0.2),
}
"""Operations, the least number of questions (2,160 together), and the least share of
networks moved the other way that are certified."""


@pytest.mark.parametrize("name", GROUPS)
def test_no_planted_network_is_certified(name):
    operations, least, share = GROUPS[name]
    counts = tally(SEEDS, operations)
    total = sum(counts.values(), Counts())
    assert total.certified == 0, total.false
    assert total.planted >= least
    assert total.safe_certified >= share * total.safe > 0
    for operation, count in counts.items():
        assert count.planted, operation
        if operation in REFUSED:
            assert count.refused == count.planted, operation
        elif operation not in CANCELLING:
            assert count.refused == 0, operation


# --- the generator finds faults ---------------------------------------------------------


def _certified_among(operations: dict, seeds=range(6)) -> int:
    return sum(tally(seeds, operations).values(), Counts()).certified


def _relu_of_the_centre(layer: nn.ReLU, box: Box) -> Box:
    return Box(box.lead.relu(), box.radius * 0)


def _signed(layer: nn.Linear, box: Box) -> Box:
    return Box(layer(box.lead), nn.functional.linear(box.radius, layer.weight).abs())


def _no_error(*given: object) -> Tensor | None:
    return None


def _half_the_radius(layer: nn.Flatten, box: Box) -> Box:
    return Box(layer(box.lead), layer(box.radius) / 2)


def _reads_any(monkeypatch) -> None:
    known = entry.FUNCTIONS["sum"].arguments
    wide = tuple(replace(a, accepts=lambda value: True) for a in known)
    change_entry(monkeypatch, "sum", arguments=wide)
    monkeypatch.setattr(interval, "_refuse_casts", lambda *given: None)
    monkeypatch.setattr(interval, "node_error", _no_error)


FAULTS = {
    "sum reads any dtype": (_reads_any, {"sum to int32": REFUSED["sum to int32"]}),
    "relu of the centre": (
        lambda m: change_entry(m, nn.ReLU, interval=_relu_of_the_centre),
        {"ReLU": ACTIVATIONS["ReLU"]},
    ),
    "signed weights": (
        lambda m: change_entry(m, nn.Linear, interval=_signed),
        {"Linear": LAYERS["Linear"]},
    ),
    "half of the radius": (
        lambda m: change_entry(m, nn.Flatten, interval=_half_the_radius),
        {"Flatten": LAYERS["Flatten"]},
    ),
    "no rounding inside": (
        lambda m: m.setattr(interval, "node_error", _no_error),
        {"sum of large": CANCELLING["sum of large"]},
    ),
    "any setting of a layer": (
        lambda m: change_entry(m, nn.ZeroPad2d, settings=()),
        {"ZeroPad2d": REFUSED["ZeroPad2d of another number"]},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, monkeypatch):
    fault, operations = FAULTS[name]
    assert _certified_among(operations) == 0
    fault(monkeypatch)
    assert _certified_among(operations) > 0


def test_a_plant_is_what_it_says():
    """The point lies in the ball and has another class; the clean image has the label."""
    plants = [planted.plant(ACTIVATIONS["ReLU"], seed) for seed in range(24)]
    plants = [one for one in plants if one is not None]
    assert len(plants) >= 20
    for model, images, labels, threat, point, drop in plants:
        assert bool(threat.contains(point, images[:1])) and drop > 0
        assert int(model(images[:1]).argmax(1)) == int(labels[0])
        assert int(model(point).argmax(1)) != int(labels[0])


# --- terms that cancel out inside -------------------------------------------------------


class Rounds(nn.Module):
    """Rounds by adding a large number: in float32, x + 1e5 - 1e5 has steps of 1/128."""

    def __init__(self, size: float, least: float) -> None:
        super().__init__()
        self.size, self.head = size, nn.Linear(1, 2)
        self.head.weight.data = torch.tensor([[1.0], [0.0]])
        self.head.bias.data = torch.tensor([-least, 0.0])

    def forward(self, x: Tensor) -> Tensor:
        """Return the margin over ``least``, and 0."""
        return self.head(((x + self.size) - self.size).relu())


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize(("size", "step"), [(1e4, 2**-10), (1e5, 2**-7), (1e6, 2**-4)])
def test_a_network_that_rounds_by_a_large_number_is_not_certified(size, step, method):
    """At 0.5 - 0.6 steps it computes 0.5 - 1 step, below the least of 0.5 - 0.8 steps."""
    model, image = Rounds(size, 0.5 - 0.8 * step).eval(), torch.tensor([[0.5]])
    label = torch.tensor([0])
    assert model(image).argmax(1) == label != model(image - 0.6 * step).argmax(1)
    assert not is_certified(model, image, label, Linf(0.6 * step), method=method)
    wide = model.double()
    assert is_certified(wide, image.double(), label, Linf(0.6 * step), method=method)
