"""Modes decide which statistics are used and updated, and are restored."""

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


KINDS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


def tracked(dimensions=2, **options):
    """Return an instance norm with running statistics far from any sample's."""
    layer = KINDS[dimensions](4, track_running_stats=True, **options)
    layer.running_mean.fill_(5.0)
    layer.running_var.fill_(4.0)
    return layer


def by_hand(x, mode):
    axes = tuple(range(2, x.ndim))
    mean, var = x.new_tensor(5.0), x.new_tensor(4.0)
    if mode != "running":
        mean, var = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt()


@pytest.mark.parametrize("mode", ["train", "batch", "running"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dimensions", KINDS)
def test_an_instance_norm_with_running_statistics_has_modes_too(mode, training, dimensions):
    layer = tracked(dimensions).train(training)
    x = torch.randn(6, 4, *[3] * dimensions) * 3 + 1
    with norms.mode(layer, mode):
        y = layer(x)
    torch.testing.assert_close(y, by_hand(x, mode))
    mean = x.flatten(2).mean((0, 2)) if mode == "train" else torch.full((4,), 5.0)
    expected = 0.9 * 5.0 + 0.1 * mean
    torch.testing.assert_close(layer.running_mean, expected)
    assert layer.training is training and "forward" not in vars(layer)


def test_modes_of_instance_norms_nest_and_end_with_an_error():
    layer, x = tracked(), torch.randn(6, 4, 3, 3)
    with pytest.raises(RuntimeError, match="stop"), norms.mode(layer, "batch"):
        with norms.mode(layer, "running"):
            torch.testing.assert_close(layer(x), by_hand(x, "running"))
        torch.testing.assert_close(layer(x), by_hand(x, "batch"))
        assert (layer.running_mean == 5).all(), "no pass has moved it yet"
        with norms.mode(layer, "train"):
            layer(x)
        assert (layer.running_mean != 5).all()
        raise RuntimeError("stop")
    moved = layer.running_mean.clone()
    layer(x)
    assert (layer.running_mean != moved).all(), "it is as it was: in training"


def test_statistics_of_instance_norms_are_frozen_and_kept():
    layer, x = tracked(), torch.randn(6, 4, 3, 3)
    with norms.freeze_statistics(layer), norms.mode(layer, "train"):
        torch.testing.assert_close(layer(x), by_hand(x, "running"))
    with norms.keep_statistics(layer):
        torch.testing.assert_close(layer(x), by_hand(x, "batch"))
        with norms.mode(layer, "train"):
            torch.testing.assert_close(layer(x), by_hand(x, "batch"))
    assert (layer.running_mean == 5).all() and layer.training


def test_an_instance_norm_without_running_statistics_is_the_same_in_every_mode():
    layer, x = nn.InstanceNorm2d(4), torch.randn(6, 4, 3, 3)
    for mode in ("train", "batch", "running"):
        with norms.mode(layer, mode):
            torch.testing.assert_close(layer(x), by_hand(x, "batch"))


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
