"""Plain convolutional networks: where the norms are, and LeNet-5 as published."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm.models import build
from advnorm.norms import NORMS


@pytest.mark.parametrize(
    ("name", "features"),
    [("lenet5", [32, 64]), ("cnn_cleverhans", [32, 64]), ("cnn_small", [16, 32, 100]),
     ("cnn_medium", [32, 32, 64, 64, 512, 512]), ("cnn_large", [64, 64, 128, 128, 128, 512]),
     ("mlp", [1000, 1000]), ("vgg8", [64, 128, 256, 512, 512])],
)  # fmt: skip
def test_norms_are_where_the_papers_put_them(name, features):
    with torch.device("meta"):
        model = build(name, shape=(1, 32, 32), classes=10, norm=NORMS["batch"]())
    layers = [m for m in model.modules() if not list(m.children())]
    layers = [m for m in layers if not isinstance(m, nn.MaxPool2d)]  # it commutes with ReLU
    norms = [i for i, layer in enumerate(layers) if hasattr(layer, "running_mean")]
    assert [layers[i].num_features for i in norms] == features
    assert all(type(layers[i + 1]) is nn.ReLU for i in norms)
    assert all(type(layers[i - 1]) in (nn.Conv2d, nn.Linear) for i in norms)


def test_lenet_is_the_published_one_in_values_and_gradients():
    """It rectifies after pooling, AdverTorch's before."""
    generator = torch.Generator().manual_seed(0)
    model = build("lenet5", shape=(1, 28, 28), classes=10, norm=NORMS["batch"]()).double()
    images = torch.rand(4, 1, 28, 28, dtype=torch.float64, generator=generator)
    parameters = dict(model.named_parameters())

    def published(x):
        for layer in ("1", "2"):
            x = F.conv2d(
                x,
                parameters[f"conv{layer}.weight"],
                parameters[f"conv{layer}.bias"],
                padding=1,
            )
            scale, shift = (
                parameters[f"norm{layer}.weight"],
                parameters[f"norm{layer}.bias"],
            )
            x = F.batch_norm(x, None, None, scale, shift, training=True)
            x = F.max_pool2d(F.relu(x), 2)
        x = x.flatten(1) @ parameters["hidden.weight"].T + parameters["hidden.bias"]
        return F.linear(
            F.relu(x),
            parameters["classifier.weight"],
            parameters["classifier.bias"],
        )

    ours, theirs = model(images), published(images)
    torch.testing.assert_close(ours, theirs)
    target = torch.randn(4, 10, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(
        torch.autograd.grad((ours * target).sum(), list(parameters.values())),
        torch.autograd.grad((theirs * target).sum(), list(parameters.values())),
    )
