"""No method certifies a network with a hidden counterexample; faulty rules do."""

from dataclasses import replace

import planted
import pytest
import torch
from planted import ACTIVATIONS, CANCELLING, FUNCTIONS, LAYERS, NORMS, REFUSED, Counts, tally
from torch import Tensor, nn

from advnorm.certify import METHODS, arguments, certified, interval, rounding, settings
from advnorm.certify.box import Box
from advnorm.certify.interval_linear import moved
from advnorm.threat import Linf

SEEDS = range(5)
GROUPS = {
    "layers": (LAYERS, 380),
    "activations and norms": (ACTIVATIONS | NORMS, 480),
    "functions": (FUNCTIONS, 650),
    "rounding": (CANCELLING | REFUSED, 700),
}
"""Operations, and the least number of questions: 2,210 together."""


@pytest.mark.parametrize("name", GROUPS)
def test_no_planted_network_is_certified(name):
    operations, least = GROUPS[name]
    counts = tally(SEEDS, operations)
    total = sum(counts.values(), Counts())
    assert total.planted >= least
    assert total.certified == 0, total.false
    never_asked = [operation for operation, count in counts.items() if not count.planted]
    assert not never_asked


@pytest.mark.parametrize("name", ["layers", "activations and norms", "functions"])
def test_what_has_a_rule_is_bounded_and_certified_where_it_is_safe(name):
    counts = tally([0, 4, 8], GROUPS[name][0])
    refused = {operation for operation, count in counts.items() if count.refused}
    assert not refused
    total = sum(counts.values(), Counts())
    assert total.safe_certified >= 0.75 * total.safe > 0


def test_what_rounds_is_refused_by_every_method():
    counts = tally([1, 3], REFUSED)
    bounded = {operation for operation, count in counts.items() if count.bounded}
    assert not bounded


# --- the generator finds faults ---------------------------------------------------------


def _found(operations: dict, seeds=range(12)) -> int:
    return sum(tally(seeds, operations).values(), Counts()).certified


def _relu_of_the_centre(layer: nn.ReLU, box: Box) -> Box:
    return Box(box.lead.relu(), box.radius * (box.lead > 0))


def _signed(layer: nn.Linear, box: Box) -> Box:
    return Box(layer(box.lead), nn.functional.linear(box.radius, layer.weight).abs())


def _no_error(*given: object) -> Tensor | None:
    return None


def _half_the_ball(rule):
    return lambda layer, box: replace(moved(layer, box), radius=moved(layer, box).radius / 2)


def _reads_any(monkeypatch) -> None:
    entry = arguments.OPERATIONS["sum"]
    wide = tuple(replace(a, accepts=lambda value: True) for a in entry.arguments)
    monkeypatch.setitem(arguments.OPERATIONS, "sum", replace(entry, arguments=wide))
    monkeypatch.setattr(interval, "_refuse_casts", lambda *given: None)


FAULTS = {
    "sum reads any dtype": (_reads_any, {"sum to int32": REFUSED["sum to int32"]}),
    "relu of the centre": (
        lambda m: m.setitem(interval.LAYERS, nn.ReLU, _relu_of_the_centre),
        {"ReLU": ACTIVATIONS["ReLU"]},
    ),
    "signed weights": (
        lambda m: m.setitem(interval.LAYERS, nn.Linear, _signed),
        {"Linear": LAYERS["Linear"]},
    ),
    "half of the ball": (
        lambda m: m.setitem(interval.LAYERS, nn.Flatten, _half_the_ball(moved)),
        {"Flatten": LAYERS["Flatten"]},
    ),
    "no rounding inside": (
        lambda m: m.setattr(interval, "error", _no_error),
        {"sum of large": CANCELLING["sum of large"]},
    ),
    "any setting of a layer": (
        lambda m: m.setattr(settings, "SETTINGS", {}),
        {"ZeroPad2d": REFUSED["ZeroPad2d of another number"]},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, monkeypatch):
    fault, operations = FAULTS[name]
    assert _found(operations) == 0
    fault(monkeypatch)
    assert _found(operations) > 0


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


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("size", [1e3, 1e5, 1e7])
def test_a_network_that_rounds_by_adding_a_large_number_is_not_certified(size, method):
    """In float32 x + 1e5 - 1e5 is x rounded to 1/128: so is what the network says."""

    class Rounds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(1, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(((x + size) - size).relu())

    model = Rounds().eval()
    step = torch.finfo(torch.float32).eps * 2 ** torch.tensor(size).log2().floor()
    image = torch.full((1, 1), 0.5)
    model.head.weight.data = torch.tensor([[1.0], [0.0]])
    flips = False
    for share in torch.linspace(-0.5, 0.5, 21):
        rounded = float(((image - step / 8) + size) - size)
        model.head.bias.data = torch.tensor([-rounded - float(step) * float(share) / 8, 0.0])
        label = model(image).argmax(1)
        points = (image + step / 8 * torch.linspace(-1, 1, 101)[:, None]).clamp(0, 1)
        with torch.no_grad():
            broken = bool((model(points).argmax(1) != label).any())
        sure = certified(model, image, Linf(float(step) / 8), label, method=method)
        assert not (broken and bool(sure))
        flips |= broken
    assert flips or size != 1e5
    assert rounding.UNITS > 0
