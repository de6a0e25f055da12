"""The smaller graph of a call has the bounds of the model's own, and only where it may."""

from copy import deepcopy

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from nets import ACTIVATIONS, CONVOLUTIONS, NORMS, POOLS, SHAPE, network, settled
from torch import nn

from advnorm.bounds import input_box, interval, interval_kernels, margin_bounds, trace, walk
from advnorm.bounds.box import Box, between
from advnorm.bounds.methods import METHODS
from advnorm.bounds.simplify import hull, simplify
from advnorm.threat import L2, Linf

NETWORKS = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(sorted(NORMS)),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "conv": st.sampled_from(sorted(CONVOLUTIONS)),
        "pool": st.sampled_from(sorted(POOLS)),
        "seed": st.integers(0, 10**6),
    }
)

EVEN_INTERVALS = {
    **{"norm": "instance", "activation": "leaky", "conv": "dilated", "pool": "max"},
    "seed": 0,
}
"""An instance norm in a large ball has even intervals: rounding may not choose a slope."""


def both(model, clean, threat, labels, method):
    """Return the bounds over the model's own graph, and over the smaller one."""
    plain = margin_bounds(model, clean, labels, threat, method=method).detach()
    with torch.no_grad():
        return plain, margin_bounds(model, clean, labels, threat, method=method)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=NETWORKS, eps=st.floats(0.001, 0.9), l2=st.booleans())
@example(parts=EVEN_INTERVALS, eps=0.5, l2=False)
def test_the_smaller_graph_has_the_same_bounds(parts, eps, l2):
    model = network(**parts)
    clean = torch.rand(3, *SHAPE, dtype=torch.float64)
    for method in METHODS:
        threat = L2(eps) if l2 else Linf(eps)
        plain, smaller = both(model, clean, threat, torch.tensor([0, 1, 2]), method)
        torch.testing.assert_close(smaller, plain, rtol=1e-9, atol=1e-9)


def switched_off():
    """Return a network of which features 0 and 2 of each hidden layer are always off."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout2d(),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(60, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 3),
    )
    model = settled(model)
    with torch.no_grad():
        for at in (1, 4, 8):
            model[at].bias.fill_(1.0)[[0, 2]] = -1000.0
    return model


def sizes(graph):
    kinds = nn.Conv2d, nn.Linear
    nodes = [node.target for node in graph.nodes if isinstance(node.target, kinds)]
    return [tuple(layer.weight.shape[:2]) for layer in nodes]


def test_features_that_are_off_are_left_out_and_norms_are_folded():
    model = switched_off()
    kept, clean = deepcopy(model.state_dict()), torch.rand(7, *SHAPE).double()
    with torch.no_grad():
        simplified = simplify(trace(model), hull(clean, Linf(0.1)))
    assert sizes(simplified.graph) == [(2, 2), (3, 2), (4, 36), (3, 4)]
    assert not any(isinstance(n.target, nn.BatchNorm2d) for n in simplified.graph.nodes)
    assert simplified.widest == 60 and simplified.outputs == 3
    images = input_box(clean, Linf(0.1)).centre
    again = walk(simplified.graph, images, lambda node, args, kw: node.target(*args, **kw))
    torch.testing.assert_close(again[-1], model(images))
    for name, value in model.state_dict().items():
        assert torch.equal(value, kept[name]), name
    for method in METHODS:
        plain, smaller = both(model, clean, Linf(0.1), torch.arange(7) % 3, method)
        torch.testing.assert_close(smaller, plain, rtol=1e-9, atol=1e-9)


def test_all_features_off_leaves_one():
    model = switched_off()
    with torch.no_grad():
        model[4].bias.fill_(-1000.0)
        simplified = simplify(trace(model), hull(torch.rand(2, *SHAPE).double(), Linf(0.1)))
    assert sizes(simplified.graph) == [(2, 2), (1, 2), (4, 12), (3, 4)]


def test_one_image_that_switches_a_feature_on_keeps_it():
    model = settled(nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [1.0]]))
        model[0].bias.copy_(torch.tensor([-0.85, -0.95]))
    clean = torch.tensor([[0.0]] * 50 + [[0.8]]).double()
    with torch.no_grad():
        assert sizes(simplify(trace(model), hull(clean, Linf(0.1))).graph) == [
            (1, 1),
            (2, 1),
        ]
        graph = simplify(trace(model), hull(clean[:50], Linf(0.1))).graph
        assert sizes(graph) == [(1, 1), (2, 1)]  # both are off: one is kept
        clean[-1] = 0.9
        assert sizes(simplify(trace(model), hull(clean, Linf(0.1))).graph) == [
            (2, 1),
            (2, 2),
        ]
    plain, smaller = both(model, clean, Linf(0.1), torch.zeros(51).long(), "crown")
    torch.testing.assert_close(smaller, plain)


class Twice(nn.Module):
    """A hidden layer that two others read, or whose size is read."""

    def __init__(self, *, by_size):
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 1)
        self.last, self.by_size = nn.Linear(24, 3), by_size

    def forward(self, x):
        x = self.one(x).relu()
        if self.by_size:
            return self.last(x.view(x.size(0), -1))
        return self.last((x + self.two(x)).flatten(1))


@pytest.mark.parametrize("by_size", [False, True])
def test_what_is_read_twice_is_kept_whole(by_size):
    torch.manual_seed(0)
    model = settled(Twice(by_size=by_size))
    with torch.no_grad():
        model.one.bias[1] = -1000.0
        simplified = simplify(trace(model), hull(torch.rand(2, *SHAPE).double(), Linf(0.1)))
    assert sizes(simplified.graph)[0] == (4, 2)
    clean = torch.rand(3, *SHAPE).double()
    plain, smaller = both(model, clean, Linf(0.1), torch.tensor([0, 1, 2]), "crown-ibp")
    torch.testing.assert_close(smaller, plain)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 2, 3])
@torch.no_grad()
def test_centres_and_radii_are_laid_out_alike(channels, layout):
    model = nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU())
    model = model.to(memory_format=layout)
    images = input_box(torch.rand(5, channels, 9, 9), Linf(0.1))
    graph, *_ = simplify(trace(model), images)
    for box in interval.interval_bounds(graph, images)[1:]:
        assert box.lead.stride() == box.radius.stride()


def test_the_hull_holds_every_image():
    clean = torch.rand(9, *SHAPE).double()
    whole = hull(clean, Linf(0.3))
    each = input_box(clean, Linf(0.3))
    assert len(whole.radius) not in clean.shape[1:]  # rows cannot pass for another side
    for row in whole.lower:
        assert torch.equal(row, each.lower.amin(0).clamp(min=0))
    for row in whole.upper:
        torch.testing.assert_close(row, each.upper.amax(0))


NUMBERS = st.floats(-3, 3)


@given(st.lists(st.tuples(NUMBERS, st.floats(0, 3)), min_size=1))
def test_relu_of_a_box_is_that_of_its_ends(pairs):
    centre, radius = torch.tensor(pairs, dtype=torch.float64).T
    with torch.no_grad():
        box = interval_kernels.relu(Box(centre, radius))
    ends = between(None, (centre - radius).relu(), (centre + radius).relu())
    torch.testing.assert_close(box.lower, ends.lower, rtol=0, atol=1e-12)
    torch.testing.assert_close(box.upper, ends.upper, rtol=0, atol=1e-12)
    assert (box.radius >= 0).all()


@pytest.mark.parametrize("classes", [3, 20])
def test_all_pairs_at_once_give_the_margins_of_each_label(classes, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, classes)).double()
    clean, labels = torch.rand(6, 5).double(), torch.arange(6) % classes
    monkeypatch.setattr(interval, "FEW", classes - 1)
    one = margin_bounds(model, clean, labels, Linf(0.1), method="ibp")
    monkeypatch.setattr(interval, "FEW", classes)
    other = margin_bounds(model, clean, labels, Linf(0.1), method="ibp")
    torch.testing.assert_close(one, other)


class ReluOfSum(nn.Module):
    """A sum that begins with a number, behind a linear layer and before a norm."""

    def __init__(self, start):
        super().__init__()
        self.linear, self.norm, self.start = nn.Linear(4, 3), nn.BatchNorm1d(3), start

    def forward(self, x):
        return torch.relu(self.norm(self.start + self.linear(x)))


@pytest.mark.parametrize("start, folds", [(0, True), (0.0, True), (1, False)])
def test_a_sum_with_zero_is_left_out(start, folds):
    model = settled(nn.Sequential(nn.Flatten(), ReluOfSum(start), nn.Linear(3, 2)))
    clean, labels = torch.rand(3, 4).double(), torch.tensor([0, 1, 0])
    with torch.no_grad():
        graph = simplify(trace(model), hull(clean, Linf(0.1))).graph
    assert any(node.function == "add" for node in graph.nodes) != folds
    plain, smaller = both(model, clean, Linf(0.1), labels, "crown")
    torch.testing.assert_close(smaller, plain)
