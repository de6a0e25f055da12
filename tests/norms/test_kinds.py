"""Which norms of the registry a model has."""

import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.models import build


@pytest.mark.parametrize("name", norms.NORMS)
def test_a_model_that_is_built_with_a_norm_has_it_and_no_other(name):
    model = build("cnn_small", shape=(3, 12, 12), classes=4, norm=norms.NORMS[name]())
    assert norms.has_norm(model, name)
    others = {"layer": {"group"}}.get(name, set())  # one group
    assert {other for other in norms.NORMS if norms.has_norm(model, other)} == {
        name
    } | others
    assert list(norms.count_norms(model)) == ([] if name == "none" else [name])


class Frozen(nn.Module):
    """A batch norm of buffers, as detection models have it."""

    def __init__(self, features):
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.ones(features))


class WithActivation(nn.BatchNorm2d):
    """A batch norm with an activation of its own."""

    def __init__(self, features):
        super().__init__(features)
        self.act = nn.ReLU()


def test_layers_of_other_packages_count_by_what_they_are_and_once():
    shared = nn.BatchNorm1d(4)
    inner = nn.Sequential(shared, norms.MixtureNorm(4), norms.AffineNorm(4), shared)
    others = [Frozen(4), WithActivation(4), nn.SyncBatchNorm(4), nn.LayerNorm(4)]
    model = nn.Sequential(inner, shared, *others, nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1))
    counts = {"batch": 4, "mixture": 1, "affine": 1, "layer": 1, "group": 1}
    assert norms.count_norms(model) == counts
    assert not any(norms.has_norm(model, name) for name in norms.NORMS)
