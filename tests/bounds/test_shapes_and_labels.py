"""Shapes, labels and images that torch takes for something else are refused."""

import pytest
import torch
from forwards import LABEL, with_weights
from torch import nn

from advnorm.bounds import certify, is_certified, margin_bounds
from advnorm.threat import L2, Linf


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.InstanceNorm1d(4), (1, 4)), (nn.InstanceNorm2d(4), (1, 4, 4))],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:input's size at dim:UserWarning")
def test_instance_norm_of_what_torch_takes_for_one_sample_is_refused(layer, shape):
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2)).eval()
    model(torch.rand(shape))
    with pytest.raises(NotImplementedError, match="samples and maps first"):
        certify(model, torch.rand(shape), LABEL, Linf(0.01))


@pytest.mark.parametrize("method", ["crown-ibp", "crown"])
def test_linear_bounds_refuse_pooling_that_takes_samples_for_maps(method):
    """At (0.7, 0.45) the margin is -0.02, and 0.03 were certified."""
    head = with_weights(nn.Linear(2, 2), [[0.0, -1.0], [0.0, 0.0]], [0.68, 0.0])
    model = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Flatten(), head).eval()
    images = torch.tensor([[[0.5], [0.45]]])
    with pytest.raises(NotImplementedError, match="samples and maps first"):
        certify(model, images, LABEL, Linf(0.2), method=method)
    certificate = certify(model, images, LABEL, Linf(0.2), method="ibp")
    assert float(certificate.margins[0, 1]) <= -0.019


@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(2, 4, bias=False), nn.InstanceNorm2d(4, affine=True, bias=False)],
    ids=str,
)
def test_norms_without_a_bias_have_bounds(layer):
    torch.manual_seed(0)
    layer.weight.data.uniform_(-1, 1)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(16, 2)).eval()
    images = torch.rand(3, 4, 2, 2)
    with torch.no_grad():
        logits = model(images)
        margins = margin_bounds(model, images, torch.zeros(3, dtype=torch.long), Linf(0.0))
    torch.testing.assert_close(margins[:, 1], logits[:, 0] - logits[:, 1])


def test_a_norm_without_running_statistics_says_so():
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    model = nn.Sequential(nn.Linear(2, 3), norm).eval()
    with pytest.raises(ValueError, match=r"'1'.*keeps no running statistics"):
        certify(model, torch.rand(2, 2), torch.tensor([0, 1]), Linf(0.1))


def test_dropout_that_drops_nothing_is_the_identity_in_training_too():
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.0)).train()
    images, labels = torch.rand(2, 2), torch.tensor([0, 1])
    for method in ("ibp", "crown"):
        margins = margin_bounds(model, images, labels, Linf(0.1), method=method)
        torch.testing.assert_close(
            margins, margin_bounds(model[0], images, labels, Linf(0.1), method=method)
        )


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 2], "labels reach from 0 to 2, and the model has 2 classes, 0 to 1"),
        ([0, -1], "labels reach from -1 to 0"),
        ([0.0, 1.0], "not labels of shape .* and type torch.float32"),
        ([True, False], "type torch.bool"),
    ],
    ids=str,
)
def test_labels_that_are_no_classes_are_refused(labels, words):
    for ask in (margin_bounds, certify, is_certified):
        with pytest.raises(ValueError, match=words):
            ask(nn.Linear(3, 2), torch.rand(2, 3), torch.tensor(labels), Linf(0.1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_may_be_of_any_whole_type(dtype):
    model, images, labels = nn.Linear(3, 2), torch.rand(2, 3), torch.tensor([0, 1])
    for ask in (margin_bounds, is_certified):
        certificate = ask(model, images, labels.to(dtype), Linf(0.1))
        torch.testing.assert_close(certificate, ask(model, images, labels, Linf(0.1)))


@pytest.mark.parametrize("threat", [Linf, L2])
def test_infinite_images_are_refused(threat):
    endless = threat(0.1, (-torch.inf, torch.inf))
    with pytest.raises(ValueError, match="images reach from"):
        certify(nn.Linear(2, 2), torch.tensor([[torch.inf, 0.5]]), LABEL, endless)
