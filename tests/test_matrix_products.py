"""Products by oneDNN are the products: values, gradients, and where they are left alone."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.nn import functional as F

from advnorm import matrix_products
from advnorm.matrix_products import linear, matmul


@pytest.fixture
def calls(monkeypatch):
    """Record the shapes that oneDNN multiplies."""
    shapes, product = [], matrix_products._multiply

    def multiply(x, weight, bias):
        shapes.append((tuple(x.shape), tuple(weight.shape)))
        return product(x, weight, bias)

    monkeypatch.setattr(matrix_products, "_multiply", multiply)
    return shapes


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=2),
    inputs=st.integers(1, 200),
    outputs=st.integers(1, 200),
    layout=st.sampled_from(["plain", "transposed", "strided", "expanded"]),
    bias=st.booleans(),
    seed=st.integers(0, 10),
)
def test_values_are_those_of_double_precision(rows, inputs, outputs, layout, bias, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*rows, inputs, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    shift = torch.randn(outputs, generator=generator) if bias else None
    if layout == "transposed":
        weight = weight.t().contiguous().t()
    elif layout == "strided":
        x = x.repeat_interleave(2, -1)[..., ::2]
        weight = weight.repeat_interleave(2, 0)[::2]
    elif layout == "expanded":
        x = x[:1].expand_as(x)
    exact = F.linear(
        x.double(), weight.double(), shift if shift is None else shift.double()
    )
    size = F.linear(x.double().abs(), weight.double().abs()) + 4
    value = linear(x, weight, shift)
    assert value.shape == exact.shape and value.dtype == torch.float32
    assert bool(((value - exact).abs() <= inputs * 2**-23 * size).all())
    assert torch.equal(linear(x, weight, shift), value)  # again the same bits


def test_large_products_are_taken_and_small_ones_are_left(calls):
    weight = torch.randn(64, 64)
    linear(torch.randn(16, 64), weight)
    matmul(torch.randn(3, 8, 64), weight)
    assert calls == [((16, 64), (64, 64)), ((3, 8, 64), (64, 64))]
    calls.clear()
    linear(torch.randn(15, 64), weight)
    linear(torch.randn(64), weight)
    linear(torch.randn(500, 63), torch.randn(65, 63))
    assert not calls


def test_gradients_of_inputs_once_and_twice(calls):
    weight, bias = torch.randn(80, 70), torch.randn(80)
    x = torch.randn(20, 70, requires_grad=True)
    for order in (1, 2):
        grads = []
        for apply in (linear, F.linear):
            (grad,) = torch.autograd.grad(
                apply(x, weight, bias).pow(3).sum(), x, create_graph=order == 2
            )
            if order == 2:
                (grad,) = torch.autograd.grad(grad.square().sum(), x)
            grads.append(grad)
        torch.testing.assert_close(
            *grads, rtol=1e-4, atol=1e-4 * float(grads[1].abs().max())
        )
    assert len(calls) >= 2


@pytest.mark.parametrize(
    "kind", ["float64", "bfloat16", "weight", "bias", "autocast", "off"]
)
def test_what_is_left_to_the_library(kind, calls, monkeypatch):
    x, weight, bias = torch.randn(32, 64), torch.randn(64, 64), torch.randn(64)
    if kind in ("float64", "bfloat16"):
        x, weight, bias = (t.to(getattr(torch, kind)) for t in (x, weight, bias))
    weight.requires_grad_(kind == "weight")
    bias.requires_grad_(kind == "bias")
    if kind == "off":
        monkeypatch.setattr(matrix_products, "_PRODUCT", None)  # an older PyTorch
    with torch.autocast("cpu", enabled=kind == "autocast"):
        value, expected = linear(x, weight, bias), F.linear(x, weight, bias)
    assert torch.equal(value, expected) and value.dtype == expected.dtype and not calls
    if kind in ("weight", "bias"):
        value.sum().backward()
        assert (weight if kind == "weight" else bias).grad.abs().sum() > 0
        with torch.no_grad():
            linear(x, weight, bias)
        assert calls


def test_not_a_number_and_infinity_come_through():
    x, weight = torch.ones(32, 64), torch.ones(64, 64)
    x[0, 0], x[1, 1], weight[3, 5] = torch.nan, torch.inf, -torch.inf
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight), equal_nan=True)
