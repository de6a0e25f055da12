"""Modes decide whose statistics are used and moved, and leave no trace."""

import pytest
import torch
from torch import nn

from advnorm import norms


def net():
    return nn.Sequential(
        nn.Linear(6, 4), nn.BatchNorm1d(4), norms.BatchNorm(4), nn.Linear(4, 3)
    )


@pytest.mark.parametrize(
    "mode, moved", [("train", True), ("batch", False), ("running", False)]
)
@pytest.mark.parametrize("layer", [1, 2])
def test_only_train_mode_moves_running_statistics(mode, moved, layer):
    model = net()
    before = model[layer].running_mean.clone()
    with norms.mode(model, mode):
        model(torch.rand(8, 6))
    assert torch.equal(before, model[layer].running_mean) is not moved
    assert model[layer].num_batches_tracked.item() == int(moved)


@pytest.mark.parametrize("mode", ["train", "batch", "running"])
def test_each_mode_normalizes_with_its_own_statistics(mode):
    x = torch.randn(50, 4) * 3 + 1
    layer = norms.BatchNorm(4).eval()
    layer.running_mean.fill_(5.0)
    layer.running_var.fill_(4.0)
    with norms.mode(layer, mode):
        y = layer(x)
    mean, var = (x.new_tensor(5.0), x.new_tensor(4.0))
    if mode != "running":
        mean, var = x.mean(0), x.var(0, unbiased=False)
    torch.testing.assert_close(y, (x - mean) / (var + 1e-5).sqrt())


def test_layers_are_restored_one_by_one_also_after_an_error():
    model = net().train()
    model[1].eval()
    with pytest.raises(RuntimeError, match="stop"), norms.mode(model, "batch"):
        assert model[1].training and not model[1].track_running_stats
        with norms.mode(model, "running"):
            assert not model[2].training
        assert model[2].training and not model[2].track_running_stats
        raise RuntimeError("stop")
    assert not model[1].training and model[2].training
    assert model[1].track_running_stats and model[2].track_running_stats


def test_a_layer_without_running_statistics_works_in_every_mode():
    layer = nn.BatchNorm1d(4, track_running_stats=False)
    x = torch.randn(8, 4)
    expected = layer(x)
    for mode in ("train", "batch", "running"):
        with norms.mode(layer, mode):
            torch.testing.assert_close(layer(x), expected)


def test_an_unknown_mode_says_which_exist():
    with (
        pytest.raises(ValueError, match="train, batch, running"),
        norms.mode(net(), "eval"),
    ):
        pass


@pytest.mark.parametrize("name", list(norms.NORMS))
def test_every_norm_takes_feature_maps(name):
    layer = norms.NORMS[name]()(6)
    assert layer(torch.randn(4, 6, 5, 5)).shape == (4, 6, 5, 5)


@pytest.mark.parametrize("name", ["batch", "group", "layer", "none"])
def test_norms_take_vectors_too(name):
    assert norms.NORMS[name]()(6)(torch.randn(4, 6)).shape == (4, 6)


def test_group_norm_takes_the_largest_divisor():
    assert norms.NORMS["group"](groups=4)(6).num_groups == 3
    assert norms.NORMS["group"]()(64).num_groups == 32
    assert norms.NORMS["group"]()(8).num_groups == 4, "one feature a group says nothing"


def test_the_constant_c_is_added_to_the_variance():
    layer = norms.NORMS["batch"](eps=3.0)(2)
    x = torch.randn(64, 2)
    expected = (x - x.mean(0)) / (x.var(0, unbiased=False) + 3.0).sqrt()
    torch.testing.assert_close(layer(x), expected)
