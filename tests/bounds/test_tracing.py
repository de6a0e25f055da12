"""What tracing may not see or leave behind: values in place, caches, settings."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from forwards import LABEL, Forward, with_weights
from torch import nn

from advnorm.bounds import certify, margin_bounds
from advnorm.bounds.tracing import trace
from advnorm.threat import Linf


def overwrites_by_name(self, x):
    h = self.layer[0](x)
    return self.layer[1](self.relu(input=h) + h)


def overwrites_by_a_function(self, x):
    h = self.layer[0](x)
    return self.layer[1](torch.relu_(input=h) + h)


@pytest.mark.parametrize("forward", [overwrites_by_name, overwrites_by_a_function])
def test_a_value_overwritten_by_keyword_is_refused(forward):
    layers = nn.Sequential(
        with_weights(nn.Linear(1, 1), [[1.0]], [-1.0]),
        with_weights(nn.Linear(1, 2), [[-1.0], [0.0]], [-0.1, 0.0]),
    )
    with pytest.raises(NotImplementedError, match="works in place on a value"):
        certify(Forward(forward, layers).eval(), torch.tensor([[0.5]]), LABEL, Linf(0.1))


def caches(self, x):
    if self.cached is None:
        self.cached = self.layer.weight.exp()
    return self.layer(x) * self.cached.sum()


def test_a_trace_leaves_caches_as_they_were():
    inner = Forward(caches, nn.Linear(3, 2))
    model, images = nn.Sequential(nn.Flatten(), inner).eval(), torch.rand(2, 3)
    before = {module: dict(vars(module)) for module in model.modules()}
    trace(model)
    assert {module: dict(vars(module)) for module in model.modules()} == before
    assert inner.cached is None
    margins = margin_bounds(model, images, torch.zeros(2, dtype=torch.long), Linf(0.0))
    assert isinstance(model(images), torch.Tensor)
    with torch.no_grad():
        logits = model(images)
    torch.testing.assert_close(margins[:, 1].detach(), logits[:, 0] - logits[:, 1])


def caches_in_a_dictionary(self, x):
    if "sum" not in self.cache:
        self.cache["sum"] = self.layer.weight.exp().sum()
    return self.layer(x) * self.cache["sum"]


def appends_to_a_list(self, x):
    self.kept.append(x + 1)
    return self.layer(x)


def makes_a_buffer(self, x):
    self.register_buffer("made", self.layer.weight.exp())
    return self.layer(x)


@pytest.mark.parametrize(
    "forward", [caches_in_a_dictionary, appends_to_a_list, makes_a_buffer]
)
def test_a_trace_leaves_containers_as_they_were(forward):
    inner = Forward(forward, nn.Linear(3, 2))
    inner.cache, inner.kept = {}, [1]
    model, images = nn.Sequential(nn.Flatten(), inner).eval(), torch.rand(2, 3)
    with contextlib.suppress(NotImplementedError):
        trace(model)
    assert inner.cache == {} and inner.kept == [1] and not dict(inner.named_buffers())
    assert isinstance(model(images), torch.Tensor)


def pools_by_its_size(self, x):
    return self.layer(F.avg_pool2d(x, (x.size(2), x.size(3))).flatten(1))


def test_settings_that_depend_on_the_input_are_named():
    model = Forward(pools_by_its_size, nn.Linear(3, 2)).eval()
    with pytest.raises(NotImplementedError, match="avg_pool2d' depend on the input"):
        certify(model, torch.rand(1, 3, 4, 4), LABEL, Linf(0.1))


def in_place_view(self, x):
    return self.layer(self.relu(x.unsqueeze_(1).squeeze_(1)))


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_views_in_place_have_the_bounds_of_views(method):
    layer, images = nn.Linear(3, 2), torch.rand(2, 3)
    labels = torch.tensor([0, 1])
    margins = margin_bounds(
        Forward(in_place_view, layer), images, labels, Linf(0.1), method=method
    )
    plain = nn.Sequential(nn.ReLU(), layer)
    torch.testing.assert_close(
        margins, margin_bounds(plain, images, labels, Linf(0.1), method=method)
    )
