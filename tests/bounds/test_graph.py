"""The traced graph computes what the model does, or refuses by name."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import models, norms
from advnorm.bounds import margin_bounds, trace, walk
from advnorm.threat import Linf

MODELS = ["cnn_small", "lenet5", "mlp", "preact_resnet18", "resnet20", "resnet18"]


def again(model: nn.Module, images: Tensor) -> Tensor:
    """Compute a model's output node by node."""
    graph = trace(model)
    values = walk(graph, images, lambda node, args, kwargs: node.target(*args, **kwargs))
    return values[graph.output]


class Users(nn.Module):
    """A forward in many spellings, with a residual sum, a constant and sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(2, 1, 1))
        self.register_buffer("shift", torch.rand(1))
        self.register_buffer("gain", torch.rand(1))
        self.last = nn.Linear(52, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Add, multiply, concatenate, reshape."""
        branch = F.relu(self.conv(x)) * (2 * self.scale) - self.shift * self.gain
        both = torch.cat([x + branch, F.max_pool2d(x, 3, stride=1, padding=1).tanh()], 1)
        both = F.pad(both, (1, 0))[:, :, 1:]
        batch, channels, _, width = both.shape
        return self.last(
            both.contiguous().view(batch, channels * width * both.size(2))[:, 8:]
        )


@pytest.mark.parametrize(
    "norm", ["batch", "mixture", "dual", "borrowed", "affine", "group"]
)
@pytest.mark.parametrize("name", MODELS)
def test_our_models_are_traced(name, norm):
    options = {"width": 4} if "resnet" in name else {}
    model = models.build(
        name,
        shape=(3, 32, 32),
        classes=4,
        norm=norms.NORMS[norm](),
        standardize=models.Standardize([0.4, 0.5, 0.6], [0.2, 0.3, 0.2]),
        options=options,
    ).eval()
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(model, images), model(images))


def test_every_spelling_is_read():
    model, images = Users(), torch.rand(5, 2, 4, 4)
    assert torch.equal(again(model, images), model(images))


def test_constants_are_read_in_every_walk_with_gradients():
    model, images = Users(), torch.rand(5, 2, 4, 4)
    graph = trace(model)

    def value() -> Tensor:
        values = walk(graph, images, lambda node, args, kw: node.target(*args, **kw))
        return values[graph.output]

    before = value()
    with torch.no_grad():
        model.scale.mul_(3)
        model.shift.add_(1)
    assert torch.equal(value(), model(images)) and not torch.equal(value(), before)
    value().sum().backward()
    mine, model.scale.grad = model.scale.grad, None
    model(images).sum().backward()
    assert torch.equal(mine, model.scale.grad)


def test_values_are_dropped_after_their_last_use():
    graph = trace(models_mlp())
    values = walk(graph, torch.rand(2, 4), lambda node, args, kw: node.target(*args, **kw))
    assert [value is not None for value in values] == [False] * graph.output + [True]


def models_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


class Uses(nn.Module):
    """Calls one function between two layers."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function, self.first = function, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        return self.function(self.first(x))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.fft.fft(x).real, "fft_fft.*relu"),
        (lambda x: x.sort(1).values, "sort.*reshape"),
        (lambda x: x if x.sum() > 0 else -x, "branches on values"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(function, words):
    with pytest.raises(NotImplementedError, match=words):
        trace(Uses(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.relu_() + x,
        lambda x: F.relu(x, inplace=True) + x,
        lambda x: F.relu(x.flatten(1), inplace=True) + x,
        lambda x: F.relu(x[:, :1], inplace=True) + x,
        lambda x: adds_to(x) + x,
    ],
)
def test_what_is_overwritten_and_read_again_is_refused(function):
    with pytest.raises(NotImplementedError, match="in place"):
        trace(Uses(function))


def adds_to(x):
    y = x
    y += 1
    return y


def test_a_layer_in_place_is_read_where_nothing_else_reads():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    images = torch.rand(3, 4)
    assert torch.equal(again(model, images), model(images))


def test_hooks_are_refused():
    model = models_mlp()
    model[0].register_forward_hook(lambda layer, args, output: 2 * output)
    with pytest.raises(NotImplementedError, match="'0' has forward hooks"):
        trace(model)


def test_two_inputs_and_two_outputs_are_refused():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    for model in (Two(), Pair()):
        with pytest.raises(NotImplementedError, match="images to logits"):
            trace(model)


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_one_layer_alone_or_none_is_a_model_too(method):
    torch.manual_seed(0)
    images, labels = 0.3 + 0.4 * torch.rand(5, 3).double(), torch.tensor([0, 1, 2, 1, 0])
    layer = nn.Linear(3, 3).double()
    for model, weight in ((layer, layer.weight), (nn.Sequential(), torch.eye(3).double())):
        logits = model(images)
        margins = logits.gather(1, labels[:, None]) - logits
        reach = 0.1 * (weight[labels][:, None] - weight).abs().sum(2)
        bounds = margin_bounds(model, images, labels, Linf(0.1), method=method)
        torch.testing.assert_close(bounds, margins - reach)
