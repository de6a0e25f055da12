"""L2 balls cut with the image bounds: the exact minimum, against a bisection."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from advnorm.bounds import input_box, interval_bounds, margin_bounds, trace
from advnorm.bounds.concretize import max_decrease
from advnorm.bounds.operations import linear
from advnorm.models import Standardize
from advnorm.threat import L2, Linf


def farthest(slope: Tensor, room: Tensor, eps: float) -> Tensor:
    """Return the best admissible step: the scale of it by bisection, one row at a time."""
    size, low, high = slope.abs(), 0.0, 1e12
    for _ in range(200):
        scale = (low + high) / 2
        long = float(torch.minimum(scale * size, room).norm()) > eps
        low, high = (low, scale) if long else (scale, high)
    return torch.minimum(low * size, room)


rows = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-5, 5).map(lambda g: round(g, 3)), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.001, 0.1, 0.5, 3.0]), min_size=n, max_size=n),
        st.sampled_from([0.0, 1e-3, 0.3, 1.0, 20.0]),
    )
)


@settings(deadline=None, max_examples=300)
@given(rows)
def test_reach_is_what_the_best_step_attains(row):
    slope, room = (torch.tensor(values, dtype=torch.float64) for values in row[:2])
    eps = row[2]
    best = farthest(slope, room, eps)
    assert best.norm() <= eps * (1 + 1e-9)
    expected = (slope.abs() * best).sum()
    torch.testing.assert_close(
        max_decrease(slope, room, eps), expected, rtol=1e-9, atol=1e-9
    )


def test_many_values_are_capped_one_after_the_other():
    """Slopes and rooms of all sizes, so that each round caps a few more."""
    torch.manual_seed(0)
    slope, room = torch.randn(20, 784).double().exp(), torch.rand(20, 784).double() ** 4
    for eps in (0.1, 1.0, 5.0, 9.0, 12.0):
        best = torch.stack([farthest(g, h, eps) for g, h in zip(slope, room, strict=True)])
        torch.testing.assert_close(max_decrease(slope, room, eps), (slope * best).sum(1))


def test_gradients_in_slope_and_room():
    torch.manual_seed(0)
    slope = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    room = (torch.rand(3, 6, dtype=torch.float64) * 0.3).requires_grad_()
    assert torch.autograd.gradcheck(lambda g, h: max_decrease(g, h, 0.3), (slope, room))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("eps", [0.05, 0.4, 1.5, 6.0])
def test_linear_networks_are_exact_where_the_image_bounds_cut(eps, seed):
    torch.manual_seed(seed)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(18, 3)).double()
    deep = nn.Sequential(
        Standardize((0.3, 0.6), (0.2, 0.5)),
        nn.Conv2d(2, 3, 2, padding=1, stride=2),
        nn.BatchNorm2d(3),
        nn.Flatten(),
        nn.Linear(12, 3),
    ).double().eval()  # fmt: skip
    images = torch.rand(3, 2, 3, 3).double()
    images[images < 0.3], images[images > 0.8] = 0, 1
    images[0, 0, 0] = torch.tensor([0.02, 0.97, 0.5])
    labels = torch.tensor([0, 1, 2])
    for model, methods in (
        (flat, ("ibp", "crown-ibp", "crown")),
        (deep, ("crown-ibp", "crown")),
    ):
        x = images.clone().requires_grad_()
        for wrong in range(3):
            margin = model(x).gather(1, labels[:, None])[:, 0] - model(x)[:, wrong]
            (slope,) = torch.autograd.grad(margin.sum(), x)
            room = torch.where(slope > 0, images, 1 - images)
            best = [
                farthest(g, h, eps)
                for g, h in zip(slope.flatten(1), room.flatten(1), strict=True)
            ]
            fall = (slope.flatten(1).abs() * torch.stack(best)).sum(1)
            for method in methods:
                margins = margin_bounds(model, images, labels, L2(eps), method=method)[
                    :, wrong
                ]
                torch.testing.assert_close(margins, margin.detach() - fall, msg=method)


def test_intervals_of_black_and_white_and_grey_are_exact():
    """A first layer's box counts only what can move, if that can move freely."""
    torch.manual_seed(0)
    model = nn.Sequential(Standardize((0.1307,), (0.3081,)), nn.Conv2d(1, 4, 3, padding=1))
    images = torch.tensor([0.0, 1.0, 0.5])[torch.randint(3, (5, 1, 6, 6))]
    threat = L2(0.4)
    with torch.no_grad():
        box = interval_bounds(trace(model), input_box(images, threat))[-1]
        centre = model(images)
    weight = model[1].weight.detach() / 0.3081
    for filters, bound, sign in ((weight, box.lower, -1), (-weight, box.upper, 1)):
        down = nn.functional.conv2d(
            (images > 0).float(), filters.clamp(min=0) ** 2, padding=1
        )
        up = nn.functional.conv2d(
            (images < 1).float(), filters.clamp(max=0) ** 2, padding=1
        )
        torch.testing.assert_close(bound, centre + sign * 0.4 * (down + up).sqrt(),
                                   atol=1e-5, rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_a_cut_ball_is_never_looser_than_the_whole_ball_or_the_box(method):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)]
    model = nn.Sequential(*layers).double()
    images = (torch.rand(20, 1, 8, 8).double() * 1.6 - 0.3).clamp(0, 1)
    labels = model(images).argmax(1)
    for eps in (0.05, 0.3, 1.0):
        cut = margin_bounds(model, images, labels, L2(eps), method=method)
        whole = margin_bounds(model, images, labels, L2(eps, (-100, 100)), method=method)
        box = margin_bounds(model, images, labels, Linf(eps), method=method)
        if method == "ibp":  # slopes of ReLUs may change for the worse in the other two
            assert (cut >= torch.maximum(whole, box) - 1e-9).all()
        assert cut.mean() > max(whole.mean(), box.mean())


@pytest.mark.parametrize("stuck", [1e-4, 0.5])
def test_intervals_of_a_first_layer_hold_whatever_counts_as_stuck(stuck, monkeypatch):
    monkeypatch.setattr(linear, "STUCK", stuck)
    torch.manual_seed(0)
    layer, eps = nn.Linear(10, 6).double(), 0.5
    for power in (1, 3, 8):  # the higher, the more values are close to a bound
        image = 1 - torch.rand(1, 10).double() ** power
        with torch.no_grad():
            box = interval_bounds(trace(nn.Sequential(layer)), input_box(image, L2(eps)))[
                -1
            ]
            centre = layer(image)[0]
        for number, slope in enumerate(layer.weight.detach()):
            falls = [
                (
                    g.abs() * farthest(g, torch.where(g > 0, image[0], 1 - image[0]), eps)
                ).sum()
                for g in (slope, -slope)
            ]
            assert box.lower[0, number] <= centre[number] - falls[0] + 1e-9
            assert box.upper[0, number] >= centre[number] + falls[1] - 1e-9
