"""An operation is one entry: what it stands for, its rules, and what is made of them."""

import pytest
import torch
from torch import Tensor, nn

from advnorm.bounds import (
    METHODS,
    certify,
    input_box,
    interval_bounds,
    margin_bounds,
    trace,
)
from advnorm.bounds.operations import FUNCTIONS, LAYERS, activation, register, valley
from advnorm.bounds.relax import on_grid
from advnorm.threat import L2, Linf


class Bump(nn.Module):
    """A toy activation with a valley: the square of a sigmoid's distance to 1/4, scaled."""

    def forward(self, x: Tensor) -> Tensor:
        """Return it."""
        return 8 * (torch.sigmoid(x) - 0.25) ** 2


BOTTOM = -1.0986122886681098  # sigmoid(x) = 1/4


@pytest.fixture
def bump():
    """Enter the toy activation by one entry, for one test."""
    register(
        activation(
            Bump,
            interval=valley(BOTTOM),
            relaxation=lambda layer, low, high: on_grid(layer, low, high, curvature=2.5),
            max_slope=2.5,
        )
    )
    yield Bump()
    del LAYERS[Bump]


def network(layer: nn.Module, *, convolution: bool) -> nn.Module:
    torch.manual_seed(0)
    if convolution:  # patches are cut out of the activation's lines
        layers = [nn.Conv2d(1, 4, 3), layer, nn.Conv2d(4, 4, 3, 2), layer, nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(16, 3)).eval()
    return nn.Sequential(nn.Flatten(), nn.Linear(49, 8), layer, nn.Linear(8, 3)).eval()


def points(threat: Linf | L2, image: Tensor, count: int) -> Tensor:
    """Return points of the set around one image: on the edge, corners, and inside."""
    many = image.expand(count, *image.shape[1:])
    noise = torch.randn(many.shape, dtype=image.dtype)
    steps = [threat.direction(noise), noise.sign(), torch.rand_like(noise) * 2 - 1]
    moved = torch.cat([many + threat.eps * step for step in steps])
    return threat.project(moved, image.expand(len(moved), *image.shape[1:]))


def margins_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    logits = model(images)
    return logits.gather(1, labels.expand(len(logits), 1)) - logits


def test_a_model_with_an_unknown_activation_is_refused_by_name():
    model = nn.Sequential(nn.Flatten(), nn.Linear(49, 2), nn.RReLU())
    with pytest.raises(NotImplementedError, match=r"no certificate for layer .*RReLU"):
        certify(model.eval(), torch.rand(1, 1, 7, 7), torch.tensor([0]), Linf(0.1))


@pytest.mark.parametrize("threat", [Linf(0.05), L2(0.3)], ids=["linf", "l2"])
@pytest.mark.parametrize("convolution", [False, True])
def test_one_entry_makes_all_methods_work(bump, convolution, threat):
    model = network(bump, convolution=convolution).double()
    images = torch.rand(3, 1, 7, 7, dtype=torch.float64)
    labels = model(images).argmax(1)
    means = {}
    for method in METHODS:
        bounds = certify(model, images, labels, threat, method=method).margins
        trained = margin_bounds(model, images, labels, threat, method=method)
        trained.sum().backward()  # certified training works, too
        torch.testing.assert_close(bounds, trained.detach())
        for row, image, label in zip(bounds, images.split(1), labels, strict=True):
            with torch.no_grad():
                seen = margins_of(model, points(threat, image, 2000), label).amin(0)
            assert (row <= seen + 1e-9).all(), method
        means[method] = float(bounds.mean())
    # its lines are tighter than its intervals
    assert means["ibp"] < means["crown-ibp"] <= means["crown"] + 1e-12


def test_the_boxes_and_roundings_of_the_entry_hold(bump):
    model = network(bump, convolution=False)
    image = torch.rand(1, 1, 7, 7)
    with torch.no_grad():
        boxes = interval_bounds(trace(model), input_box(image, Linf(0.1)))
        samples = points(Linf(0.1), image, 500)
        values = [samples, *(model[: i + 1](samples) for i in range(4))]
        exact = [samples, *(model.double()[: i + 1](samples.double()) for i in range(4))]
    for box, value, wide in zip(boxes, values, exact, strict=True):
        assert (value >= box.lower).all() and (value <= box.upper).all()
        assert (wide >= box.lower).all() and (wide <= box.upper).all()


def test_a_planted_violation_of_the_entry_is_not_certified(bump):
    """The clean image has the label, and a point of the ball does not."""
    refuted = 0
    for seed in range(30):
        torch.manual_seed(seed)
        layers = [nn.Linear(4, 6), bump, nn.Linear(6, 6), bump, nn.Linear(6, 3)]
        model, image, threat = nn.Sequential(*layers).eval(), torch.rand(1, 4), Linf(0.1)
        label = model(image).argmax(1)
        seen = margins_of(model, points(threat, image, 500), label).detach()
        wrong = seen.amin(0).scatter(0, label, torch.inf).argmin()
        drop = float(seen[:, wrong].max() - seen[:, wrong].min())
        margin = float(margins_of(model, image, label)[0, wrong].detach())
        low = float(seen[:, wrong].min())
        model[-1].bias.data[wrong] += low + 1e-3 * drop
        if margin - low - 1e-3 * drop <= 0:
            continue
        refuted += 1
        for method in METHODS:
            assert not certify(model, image, label, threat, method=method).certified.any()
    assert refuted >= 15


def test_a_faulty_entry_is_seen(bump, monkeypatch):
    """Without its valley the toy's intervals miss values: the checks above would tell."""
    from entries import change_entry

    change_entry(monkeypatch, Bump, interval=LAYERS[nn.Sigmoid].interval)
    image = torch.full((1, 2), 0.5)
    model = nn.Sequential(nn.Linear(2, 2), bump).eval()
    model[0].weight.data, model[0].bias.data = torch.eye(2) * 4, torch.full((2,), -3.0)
    with torch.no_grad():
        box = interval_bounds(trace(model), input_box(image, Linf(0.3)))[-1]
        values = model(points(Linf(0.3), image, 500))
    assert (values < box.lower - 0.01).any()


def test_every_entry_stands_for_something_and_is_entered_under_each_name():
    for operation in {
        id(op): op for op in (*LAYERS.values(), *FUNCTIONS.values())
    }.values():
        assert operation.layers or operation.functions
        assert all(LAYERS[kind] is operation for kind in operation.layers)
        assert all(FUNCTIONS[name] is operation for name in operation.functions)
        assert (operation.prepare is None) or (operation.backward is not None)
        assert (operation.relaxation is None) or operation.needs_bounds
