"""A first layer for tiles is the plain layer, at every step of SGD."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from advnorm.models import TiledLinear, build, untile
from advnorm.models.tiled_linear import TileGrid
from advnorm.norms import NORMS

NONE = NORMS["none"]()


def enlarged(small: torch.Tensor, side: int) -> torch.Tensor:
    return small.repeat_interleave(side, -1).repeat_interleave(side, -2)


def pair(
    grid: TileGrid, outputs: int = 4, seed: int = 0
) -> tuple[nn.Sequential, nn.Sequential]:
    """Return a plain and a tiled network with the same weights."""
    torch.manual_seed(seed)
    pixels = grid.channels * grid.rows * grid.columns * grid.side**2
    plain = nn.Sequential(
        nn.Flatten(), nn.Linear(pixels, outputs), nn.ReLU(), nn.Linear(outputs, 3)
    ).double()
    tiled = deepcopy(plain)
    tiled[1] = TiledLinear(plain[1], grid)
    return plain, tiled


def train(model: nn.Sequential, images: torch.Tensor, steps: int, **options: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, **options)
    labels = torch.arange(len(images)) % 3
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


@given(
    channels=st.integers(1, 2),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    side=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.9]),
    decay=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 100),
)
@settings(max_examples=40, deadline=None)
def test_sgd_moves_both_layers_alike(channels, rows, columns, side, momentum, decay, seed):
    grid = TileGrid(channels, rows, columns, side)
    plain, tiled = pair(grid, seed=seed)
    small = torch.randn(6, channels, rows, columns, dtype=torch.float64)
    for model in (plain, tiled):
        train(model, enlarged(small, side), 5, momentum=momentum, weight_decay=decay)
    linear = tiled[1].to_linear()
    torch.testing.assert_close(linear.weight, plain[1].weight, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(linear.bias, plain[1].bias, rtol=1e-9, atol=1e-11)


def test_the_part_that_images_never_meet_decays_alone():
    _, tiled = pair(TileGrid(1, 2, 2, 2))
    images = enlarged(torch.rand(6, 1, 2, 2, dtype=torch.float64), 2)
    train(tiled, images, 3, weight_decay=0.5)
    expected = torch.full_like(tiled[1].scale, 0.9**3)
    torch.testing.assert_close(tiled[1].scale.detach(), expected)


def test_any_image_has_the_gradient_of_the_plain_layer_in_an_attack():
    plain, tiled = pair(TileGrid(2, 2, 3, 2))
    tiled[1].scale.data.fill_(0.5)
    weight = tiled[1].to_linear().weight
    plain[1].weight.data.copy_(weight.data)
    images = torch.randn(5, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    tiled.requires_grad_(False)  # as in an attack
    for model in (tiled.train(), tiled.eval()):
        gradient, expected = (
            torch.autograd.grad(net(images).square().sum(), images)[0]
            for net in (model, plain)
        )
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-11)


def test_the_input_gradient_of_a_tiled_image_includes_the_part_it_never_meets():
    plain, tiled = pair(TileGrid(1, 2, 2, 3))
    small = torch.rand(2, 1, 2, 2, dtype=torch.float64)
    images = enlarged(small, 3).requires_grad_()
    gradient, expected = (
        torch.autograd.grad(net(images).sum(), images)[0] for net in (tiled.train(), plain)
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-11)
    assert not torch.equal(gradient, enlarged(gradient[..., ::3, ::3], 3))


def test_training_on_other_images_is_refused():
    _, tiled = pair(TileGrid(1, 2, 2, 2))
    images = torch.rand(2, 1, 4, 4, dtype=torch.float64)
    learned = nn.Parameter(torch.ones((), dtype=torch.float64))  # a layer before it
    for shown in (images, learned * images):
        with pytest.raises(
            ValueError, match=r"do not consist of tiles of 2x2 equal pixels: .* leave out"
        ):
            tiled.train()(shown)
    with torch.no_grad():
        tiled(images)
    tiled.eval()(images)


@pytest.mark.parametrize("start", ["uniform", "he"])
def test_the_option_changes_no_weight_and_untiling_gives_the_plain_network(start):
    nets = []
    for tile in (1, 4):
        torch.manual_seed(3)
        options = {"width": 8, "depth": 2, "start": start, "tile": tile}
        nets.append(build("mlp", shape=(1, 8, 8), classes=3, norm=NONE, options=options))
    plain, tiled = nets
    images = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(tiled.eval()(images), plain(images))
    again = untile(tiled)
    assert not [layer for layer in again.modules() if isinstance(layer, TiledLinear)]
    torch.testing.assert_close(again.state_dict(), plain.state_dict())


@pytest.mark.parametrize(
    ("shape", "options", "sentence"),
    [
        ((1, 8, 8), {"tile": 3}, "cannot divide images of 8x8 into tiles of 3x3"),
        ((1, 8, 8), {"tile": 0}, "'tile' of model 'mlp': 0 should be greater than 0"),
        ((64,), {"tile": 2}, "takes images of shape"),
        ((1, 8, 8), {"tile": 2, "depth": 0}, "depth of at least 1"),
    ],
)
def test_what_has_no_tiles_is_refused(shape, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("mlp", shape=shape, classes=3, norm=NONE, options=options)


def test_reduced_precision_stays_reduced():
    _, tiled = pair(TileGrid(1, 2, 2, 2))
    images = enlarged(torch.rand(3, 1, 2, 2), 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tiled.float().train()[:2](images).dtype == torch.bfloat16
