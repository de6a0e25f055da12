"""The two lines of an activation hold it between them, and touch it where they should."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm import transposed_convolution
from advnorm.bounds.operations import LAYERS as ENTRIES

RELAXATIONS = {
    kind: entry.relaxation for kind, entry in ENTRIES.items() if entry.relaxation
}

LAYERS = [
    nn.ReLU(),
    nn.LeakyReLU(0.1),
    nn.LeakyReLU(1.5),
    nn.LeakyReLU(-0.3),
    nn.PReLU(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.Softplus(beta=3, threshold=5),
    nn.ELU(),
    nn.ELU(alpha=2.5),
    nn.Hardtanh(-0.5, 2.0),
    nn.ReLU6(),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.Mish(),
    nn.CELU(),
    nn.CELU(alpha=2.5),
    nn.LogSigmoid(),
    nn.Softsign(),
    nn.Hardsigmoid(),
    nn.Hardswish(),
]
reals = st.floats(-12, 12, allow_nan=False)


def lines(layer, low, high):
    a, b = (torch.tensor([[v]], dtype=torch.float64) for v in (low, high))
    return RELAXATIONS[type(layer)](layer.double(), a, b)


def gaps(layer, low, high, count=2001):
    """Return f minus the lower line and the upper line minus f, on a fine grid."""
    z = torch.linspace(low, high, count, dtype=torch.float64).view(-1, 1)
    a, b, c, d = lines(layer, low, high)
    with torch.no_grad():
        f = layer.double()(z)
    return (f - (a * z + b)).detach(), (c * z + d - f).detach()


def test_every_relaxation_is_tried():
    assert {type(layer) for layer in LAYERS} == set(RELAXATIONS)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@settings(deadline=None)
@given(a=reals, b=reals)
def test_the_activation_lies_between_its_lines(layer, a, b):
    below, above = gaps(layer, min(a, b), max(a, b))
    assert below.min() >= -1e-12 and above.min() >= -1e-12


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@settings(deadline=None)
@given(a=reals)
def test_an_empty_interval_gives_the_value(layer, a):
    below, above = gaps(layer, a, a)
    slack = 0.0 if not isinstance(layer, nn.Softplus) else 3e-3
    assert below.max() <= slack + 1e-12 and above.max() <= slack + 1e-12


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@settings(deadline=None)
@given(a=reals, width=st.floats(0.01, 8))
def test_each_line_touches_up_to_the_grids_gap(layer, a, width):
    """No line can be moved closer by more than what the grid and the threshold cost."""
    below, above = gaps(layer, a, a + width)
    grid = isinstance(layer, nn.SiLU | nn.GELU | nn.Mish)
    slack = 0.83 * (width / 32) ** 2 / 8 if grid else 3e-3 * isinstance(layer, nn.Softplus)
    fine = (width / 2000) * 2.6 * 2  # the test's own grid misses a bend by half a cell
    assert below.min() <= slack + fine and above.min() <= slack + fine


@pytest.mark.parametrize(
    "low, high, lower, upper",
    [
        (-1.0, 3.0, (1.0, 0.0), (0.75, 0.75)),  # u > -l: the identity below
        (-3.0, 1.0, (0.0, 0.0), (0.25, 0.75)),
        (-2.0, 2.0, (0.0, 0.0), (0.5, 1.0)),  # a tie goes to zero
        (1.0, 2.0, (1.0, 0.0), (1.0, 0.0)),
        (-2.0, -1.0, (0.0, 0.0), (0.0, 0.0)),
        (0.0, 0.0, (0.0, 0.0), (0.0, 0.0)),
    ],
)
def test_relu_by_hand(low, high, lower, upper):
    slopes = [float(v) for v in lines(nn.ReLU(), low, high)]
    assert slopes == pytest.approx([*lower, *upper])


def test_gradients_of_relus_lines_are_finite_everywhere():
    low = torch.tensor([-1.0, 0.0, 0.0, -1e-30, 1.0], requires_grad=True)
    high = torch.tensor([2.0, 0.0, 1.0, 1e-30, 2.0], requires_grad=True)
    sum(line.sum() for line in RELAXATIONS[nn.ReLU](nn.ReLU(), low, high)).backward()
    assert torch.isfinite(low.grad).all() and torch.isfinite(high.grad).all()


@pytest.mark.parametrize("stride, kernel, padding, side", [
    (2, 4, 0, 11), (2, 1, 0, 7), (2, 2, 3, 6), (2, 3, 1, 8), (3, 2, 1, 10), (2, (2, 5), (1, 2), 9), (4, 3, 0, 15),
])  # fmt: skip
def test_interleaved_is_the_transpose_of_a_convolution(stride, kernel, padding, side):
    """By the definition of a transpose: <a, W x> = <W^T a, x>."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, kernel, stride, padding, bias=False).double()
    x = torch.randn(4, 2, side, side + 1, dtype=torch.float64)
    value = layer(x)
    a = torch.randn_like(value)
    back = transposed_convolution.transposed(
        layer.weight, stride, layer.padding, a, x.shape[2:]
    )
    with torch.no_grad():  # by another way
        written = transposed_convolution.transposed(
            layer.weight, stride, layer.padding, a, x.shape[2:]
        )
    torch.testing.assert_close(written, back)
    fits = transposed_convolution.fits(layer.stride, layer.dilation, layer.groups)
    assert fits and back.shape == x.shape
    ours, plain = ((p * q).flatten(1).sum(1) for p, q in ((back, x), (a, value)))
    torch.testing.assert_close(ours, plain)
