"""No admissible image ever falls below a bound, whatever the layers; planted faults do."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest
import torch
from entries import change_entry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nets import (
    ACTIVATIONS,
    CONVOLUTIONS,
    NORMS,
    POOLS,
    SHAPE,
    network,
    points,
    settled,
    small,
)
from torch import nn

from advnorm.bounds import (
    backward,
    certify,
    intermediate,
    linear_forms,
    margin_bounds,
    patches,
    relax,
)
from advnorm.bounds.box import Box
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.methods import METHODS
from advnorm.bounds.operations import FUNCTIONS, LAYERS, batch_norms
from advnorm.models.standardize import Standardize
from advnorm.norms.moments import measure_moments
from advnorm.threat import L2, Linf

THREATS = [Linf(0.1), L2(0.3)]


def attained(model, clean, threat, count=1000):
    """Return the labels, and the least margin of each class that a point attains."""
    with torch.no_grad():
        labels, least = model(clean).argmax(1), []
        for x, y in zip(clean.split(1), labels, strict=True):
            logits = model(points(threat, x, count))
            least.append((logits[:, y : y + 1] - logits).amin(0))
    return labels, torch.stack(least).scatter(1, labels[:, None], torch.inf)


def violation(model, clean, threat, method, seen):
    """Return by how much the worst point falls below the bounds (negative: none does)."""
    labels, least = seen
    with torch.no_grad():
        return float(
            (margin_bounds(model, clean, labels, threat, method=method) - least).max()
        )


def images(count=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, *SHAPE, dtype=torch.float64, generator=generator)


CASES = [{"norm": norm} for norm in NORMS]
CASES += [{"activation": name, "norm": "torch"} for name in ACTIVATIONS]
CASES += [{"conv": name, "norm": "torch"} for name in CONVOLUTIONS]
CASES += [{"pool": name} for name in POOLS]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.name)
@pytest.mark.parametrize("parts", CASES, ids=lambda parts: "-".join(parts.values()))
def test_every_layer_type_and_norm(parts, threat):
    """10,000 samples and all 4,096 corners."""
    model = network(**parts)
    seen = attained(model, images(), threat, count=5000)
    for method in METHODS:
        assert violation(model, images(), threat, method, seen) <= 1e-9, method


NETWORKS = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(sorted(NORMS)),
        "activation": st.sampled_from(sorted(ACTIVATIONS)),
        "conv": st.sampled_from(sorted(CONVOLUTIONS)),
        "pool": st.sampled_from(sorted(POOLS)),
        "seed": st.integers(0, 10**6),
    }
)
RADII = st.floats(0.001, 0.9)


def check(parts, eps, l2):
    """In float64 to 1e-9; in float32 to a quarter of what a verdict subtracts."""
    model, clean = network(**parts), images(seed=parts["seed"]).float().double()
    threat = L2(eps) if l2 else Linf(eps)
    seen = labels, least = attained(model, clean, threat, count=5000)
    narrow = deepcopy(model).float()
    for method in METHODS:
        assert violation(model, clean, threat, method, seen) <= 1e-9, method
        certificate = certify(narrow, clean.float(), labels, threat, method=method)
        assert (certificate.margins.double() - certificate.slack / 4 <= least).all(), method


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=NETWORKS, eps=RADII, l2=st.booleans())
def test_50_random_networks(parts, eps, l2):
    check(parts, eps, l2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=NETWORKS, eps=RADII, l2=st.booleans())
def test_200_random_networks(parts, eps, l2):
    check(parts, eps, l2)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_ball_of_no_size_gives_the_forward_value(method, norm):
    model, clean = network(norm=norm), images(3)
    logits = model(clean)
    labels = logits.argmax(1)
    margins = margin_bounds(model, clean, labels, Linf(1e-14), method=method)
    torch.testing.assert_close(margins, logits.gather(1, labels[:, None]) - logits)


class Beside(nn.Module):
    """A layer of the standardized images, and one of the images themselves."""

    def __init__(self):
        super().__init__()
        self.standardize = Standardize((0.3, 0.6), (0.2, 0.5))
        self.one, self.two = nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x):
        return self.one(self.standardize(x).flatten(1)) - self.two(x.flatten(1))


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.name)
def test_linear_networks_are_exact(threat):
    """One layer for ibp; any depth for the linear bounds, whose minimum is attained."""
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double()
    deep = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, stride=2),
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.Linear(5, 3),
    ).double()
    scaled = nn.Sequential(Standardize((0.3, 0.6), (0.2, 0.5)), deepcopy(deep)).double()
    clean, labels = images(4) * 0.4 + 0.3, torch.tensor([0, 1, 2, 0])  # bounds do not bind
    tight = ("crown-ibp", "crown")
    any_depth = [(model, tight) for model in (deep, scaled, Beside().double())]
    for model, methods in ((flat, METHODS), *any_depth):
        x = clean.clone().requires_grad_()
        for wrong in range(3):
            margin = model(x).gather(1, labels[:, None])[:, 0] - model(x)[:, wrong]
            (slope,) = torch.autograd.grad(margin.sum(), x)
            size = slope.flatten(1).norm(1 if threat.name == "linf" else 2, dim=1)
            for method in methods:
                margins = margin_bounds(model, clean, labels, threat, method=method)[
                    :, wrong
                ]
                torch.testing.assert_close(margins, margin.detach() - threat.eps * size)


def test_enumeration_of_tiny_relu_networks_is_never_contradicted():
    """The exact least margin over a box: a linear programme in each pattern of ReLUs."""
    from itertools import product

    from scipy.optimize import linprog

    torch.manual_seed(1)
    for _ in range(3):
        model = nn.Sequential(
            nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)
        )
        model.double()
        x = torch.rand(1, 2, dtype=torch.float64)
        (w1, b1), (w2, b2), (w3, b3) = ((m.weight.data, m.bias.data) for m in model[::2])
        exact = float("inf")
        for on1, on2 in product(product((0, 1), repeat=4), product((0, 1), repeat=3)):
            d1, d2 = torch.tensor(on1).double(), torch.tensor(on2).double()
            a2, c2 = w2 * d1 @ w1, w2 @ (d1 * b1) + b2
            spec = w3[0] - w3[1]
            a3, c3 = spec * d2 @ a2, spec @ (d2 * c2) + b3[0] - b3[1]
            signs = torch.cat([1 - 2 * d1, 1 - 2 * d2])  # on: -z <= 0, off: z <= 0
            rows, limits = torch.cat([w1, a2]), torch.cat([b1, c2])
            box = [(max(0, float(v) - 0.3), min(1, float(v) + 0.3)) for v in x[0]]
            optimum = linprog(
                a3.numpy(),
                (signs[:, None] * rows).numpy(),
                (-signs * limits).numpy(),
                bounds=box,
            )
            if optimum.success:
                exact = min(exact, optimum.fun + float(c3))
        labels = torch.tensor([0])
        values = [
            margin_bounds(model, x, labels, Linf(0.3), method=m)[0, 1].detach()
            for m in METHODS
        ]
        assert all(float(v) <= exact + 1e-9 for v in values)
        assert exact - float(values[-1]) < 0.5 * abs(exact - float(values[0])) + 0.5


WINDOWED = [
    [nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1)],
    [nn.Conv2d(2, 4, 2, dilation=2), nn.Tanh(), nn.Conv2d(4, 4, 3, stride=2, groups=2)],
    [
        nn.Conv2d(2, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 2, 2, dilation=(2, 3), padding=1, groups=2),
    ],
    [
        nn.Conv2d(2, 4, (1, 3), padding=(2, 1), bias=False),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 4, 2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3, stride=(1, 2), padding=1),
    ],
]


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.name)
@pytest.mark.parametrize(
    "layers", WINDOWED, ids=["padded", "dilated", "dilated last", "norms"]
)
def test_windows_give_the_bounds_of_whole_maps(layers, threat, monkeypatch):
    torch.manual_seed(0)
    standardize = Standardize([0.4, 0.6], [0.5, 0.25])
    end = [
        nn.BatchNorm2d(layers[-1].out_channels),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(3),
    ]
    model = nn.Sequential(standardize, *deepcopy(layers), *end)
    model(torch.rand(2, 2, 9, 9))
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            layer.reset_parameters()  # not what happened to be drawn at import
    settled(model)
    clean, labels = torch.rand(3, 2, 9, 9).double(), torch.tensor([0, 1, 2])
    used, true = [], patches.ReceptiveField.cut
    monkeypatch.setattr(
        patches.ReceptiveField, "cut", lambda *given: (used.append(1), true(*given))[1]
    )
    with_patches = margin_bounds(model, clean, labels, threat)
    assert used, "patches were meant to be tried"
    monkeypatch.setattr(
        patches.ReceptiveField,
        "cut",
        lambda self, maps, out: true(self, maps.roll(1, -1), out),
    )
    assert not torch.allclose(margin_bounds(model, clean, labels, threat), with_patches)
    monkeypatch.setattr(intermediate, "_by_entries", intermediate._by_rows)
    torch.testing.assert_close(margin_bounds(model, clean, labels, threat), with_patches)


# --- planted faults -------------------------------------------------------------------


def patched(module, name):
    """Return a decorator: the fault gets the true function and gives a wrong one."""

    def enter(fault):
        def plant(monkeypatch):
            monkeypatch.setattr(module, name, fault(getattr(module, name)))

        plant.__name__ = fault.__name__
        return plant

    return enter


@patched(linear_forms, "through_lines")
def swapped_lines(true):
    return lambda a, lines: true(a, relax.Lines(*lines[2:], *lines[:2]))


@patched(linear_forms, "times_bias")
def no_layer_bias(true):
    return lambda a, bias, dim: a.new_zeros(a.shape[:2])


@patched(linear_forms, "through_lines")
def no_upper_bias(true):
    return lambda a, lines: true(a, lines._replace(upper_bias=lines.upper_bias * 0))


@patched(linear_forms, "through_lines")
def chord_below(true):
    return lambda a, lines: true(a, relax.Lines(*lines[2:], *lines[2:]))


@patched(linear_forms, "through_lines")
def always_active(true):
    return lambda a, lines: LinearForms(a, a.new_zeros(a.shape[:2]))


def faulty_norms(fault):
    """Give the fault a norm's true factor and shift, of every norm that has them."""

    def plant(monkeypatch):
        wrong = fault(batch_norms.channel_affine)
        for kind in [kind for kind, entry in LAYERS.items() if entry.channel_affine]:
            change_entry(monkeypatch, kind, channel_affine=wrong, prepare=wrong)

    plant.__name__ = fault.__name__
    return plant


@faulty_norms
def norm_without_mean(true):
    return lambda layer, box: (true(layer, box)[0], layer.bias)


@faulty_norms
def norm_without_root(true):
    def fold(layer, box):
        factor, shift = true(layer, box)
        return factor * torch.rsqrt(layer.running_var + layer.eps).view_as(factor), shift

    return fold


@faulty_norms
def norm_of_the_batch(true):
    return lambda layer, box: batch_norms.coefficients(
        layer, measure_moments(box.centre), len(box.shape)
    )


def eps_not_scaled_by_std(monkeypatch):
    def wrong(function, box, by):
        return Box(box.lead / by, box.radius)

    change_entry(monkeypatch, "div", interval=wrong)


@patched(backward, "concretize")
def half_eps(true):
    return lambda box, rows: true(replace(box, radius=box.radius / 2), rows)


@patched(backward, "concretize")
def ball_of_half_the_radius(true):
    return lambda box, rows: true(
        replace(box, ball=box.ball and replace(box.ball, eps=box.ball.eps / 2)), rows
    )


def wrong_padding(monkeypatch):
    true = LAYERS[nn.Conv2d].backward

    def moved(call, a, prepared):
        ((coefficients, bias),) = true(call, a, prepared)
        return [LinearForms(coefficients.roll(1, -1), bias)]

    change_entry(monkeypatch, nn.Conv2d, backward=moved)


def a_branch_forgotten(monkeypatch):
    true = FUNCTIONS["add"].backward

    def one_branch(call, a, prepared):
        first, *others = true(call, a, prepared)
        forgotten = first.coefficients * (not others)
        return [LinearForms(forgotten, first.bias), *others]

    change_entry(monkeypatch, "add", backward=one_branch)


def pool_always_sure(monkeypatch):
    true = LAYERS[nn.MaxPool2d].prepare

    def sure(layer, box):
        return true(layer, box)._replace(sure=torch.tensor(True))

    change_entry(monkeypatch, nn.MaxPool2d, prepare=sure)


@patched(relax, "parallel")
def tangent_forgotten(true):
    return lambda f, low, high, k, points, slack=0.0: true(f, low, high, k, ())


def signed_weights_on_the_radius(monkeypatch):
    def signed(layer, box):
        return Box(layer(box.lead), nn.functional.linear(box.radius, layer.weight).abs())

    change_entry(monkeypatch, nn.Linear, interval=signed)


@patched(intermediate, "EntryBounds")
def upper_bounds_not_negated(true):
    return lambda place, low, negative: true(place, low, negative.clamp(min=0))


SMALL = {"conv": "strided"}
FAULTS = [
    (swapped_lines, SMALL, "crown-ibp", 0),
    (no_layer_bias, SMALL, "crown-ibp", 0),
    (no_upper_bias, SMALL, "crown-ibp", 0),
    (chord_below, SMALL, "crown-ibp", 0),
    (always_active, SMALL, "crown-ibp", 0),
    (norm_without_mean, {"norm": "torch"}, "crown-ibp", 0),
    (norm_without_root, {"norm": "torch"}, "crown-ibp", 0),
    (norm_of_the_batch, {"norm": "torch"}, "crown-ibp", 0),
    (eps_not_scaled_by_std, SMALL, "ibp", 0),
    (half_eps, SMALL, "crown", 0),
    (ball_of_half_the_radius, SMALL, "crown", 1),
    (wrong_padding, SMALL, "crown-ibp", 0),
    (a_branch_forgotten, {"residual": True}, "crown-ibp", 0),
    (pool_always_sure, {"pool": "max"}, "crown", 0),
    (tangent_forgotten, {"activation": "tanh"}, "crown", 0),
    (signed_weights_on_the_radius, {"hidden": True}, "ibp", 0),
    (upper_bounds_not_negated, {"hidden": True}, "crown", 0),
]


@cache
def subjects(parts, threat):
    """Return networks, their images, and what their points attain: no fault touches it."""
    networks = []
    for seed in range(8):
        model, clean = small(**dict(parts), seed=seed), images(2, seed)
        networks.append((model, clean, attained(model, clean, threat, 500)))
    return networks


def found_wrong(parts, method, threat):
    """Tell whether the check of this file reports a violation on one of some networks."""
    return any(
        violation(model, clean, threat, method, seen) > 1e-6
        for model, clean, seen in subjects(tuple(parts.items()), threat)
    )


def test_the_networks_of_the_faults_are_sound_without_them():
    for _, parts, method, threat in FAULTS:
        assert not found_wrong(parts, method, THREATS[threat])


@pytest.mark.parametrize(
    "fault, parts, method, threat", FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)
def test_a_planted_fault_is_caught(fault, parts, method, threat, monkeypatch):
    fault(monkeypatch)
    assert found_wrong(parts, method, THREATS[threat])
