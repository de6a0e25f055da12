"""A model whose output depends on the batch, on types or on chance is refused."""

import pytest
import torch
from forwards import LABEL, Forward, with_weights
from torch import nn
from torch.nn.modules import module as every_module

from advnorm.bounds import certify
from advnorm.models import build
from advnorm.norms import NORMS
from advnorm.threat import Linf


def looks_at_types(self, x):
    return self.layer(1 - x if isinstance(x, torch.Tensor) else x)


def looks_whether_it_is_a_tensor(self, x):
    return self.layer(1 - x if torch.is_tensor(x) else x)


@pytest.mark.parametrize("forward", [looks_at_types, looks_whether_it_is_a_tensor])
def test_a_branch_on_types_is_refused(forward):
    layer = with_weights(nn.Linear(2, 2), [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    with pytest.raises(NotImplementedError, match="answers otherwise than the layers"):
        certify(
            Forward(forward, layer).eval(), torch.tensor([[0.9, 0.1]]), LABEL, Linf(0.1)
        )


def under_autocast(self, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.layer(x)


def under_autocast_and_back(self, x):
    return under_autocast(self, x) + self.layer.bias


@pytest.mark.parametrize("forward", [under_autocast, under_autocast_and_back])
def test_autocast_inside_of_the_model_is_refused(forward):
    torch.manual_seed(0)
    model = Forward(forward, nn.Linear(8, 3)).eval()
    with pytest.raises(NotImplementedError, match="autocast"):
        certify(model, torch.rand(4, 8), torch.zeros(4, dtype=torch.long), Linf(0.1))


def test_hooks_on_all_modules_are_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    handle = every_module.register_module_forward_hook(lambda m, x, out: out + 0.1)
    try:
        with pytest.raises(NotImplementedError, match="hooks on all modules"):
            certify(model, torch.rand(1, 2), LABEL, Linf(0.1))
    finally:
        handle.remove()


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-torch.inf, torch.inf)])
def test_samples_that_change_places_are_refused(limits):
    def forward(self, x):
        count = x.size(0)
        return self.layer(x[(torch.arange(count) + 1) % count])

    torch.manual_seed(0)
    model = Forward(forward, nn.Linear(4, 2)).eval()
    with pytest.raises(NotImplementedError, match="depends on the others"):
        certify(model, torch.rand(6, 4), torch.zeros(6).long(), Linf(0.001, limits))


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8), nn.GroupNorm(8, 8)], ids=str)
@pytest.mark.parametrize("depth", [1, 4])
def test_a_black_image_is_no_reason_to_refuse(norm, depth):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), norm, nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(8, 8, 3, padding=1), norm, nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 3)).eval()
    images = torch.rand(4, 3, 8, 8)
    images[0] = 0
    certify(model, images, torch.zeros(4).long(), Linf(0.001), method="ibp")


def test_small_chance_is_refused():
    """Beyond what a verdict subtracts; before, a third of the calls let it pass."""

    def forward(self, x):
        return self.layer(x) + 3e-4 * torch.randn(2)

    layer = with_weights(nn.Linear(2, 2), [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    model = Forward(forward, layer).eval()
    passed = chance = 0
    for seed in range(50):
        torch.manual_seed(seed)
        try:
            certify(model, torch.tensor([[0.9, 0.5]]), LABEL, Linf(0.0))
            passed += 1
        except NotImplementedError as error:
            chance += "or on chance" in str(error)
    assert passed <= 2 and chance >= 40


def test_answers_that_are_no_numbers_are_refused():
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            h = self.layer[0](x)
            return self.layer[1](h - 0.5 * h) + self.zero

    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with_weights(layers[0], [[1e6, 0.0], [0.0, 1e6]], [0.0, 0.0])
    with_weights(layers[1], [[1e-6, 0.0], [0.0, 1e-6]], [0.0, 0.0])
    model = Forward(forward, layers).eval()
    model.zero = nn.Parameter(torch.zeros(2))
    image = torch.tensor([[0.9, 0.1]])
    assert bool(model(image).isnan().all())
    with pytest.raises(NotImplementedError):
        certify(model, image, LABEL, Linf(0.1))


def test_promoted_logits_of_wide_networks_are_not_refused():
    prior = torch.full((3,), 1 / 3, dtype=torch.float64).log()
    for seed in range(5):
        torch.manual_seed(seed)
        layers = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
        model = Forward(lambda self, x: self.layer(x) + prior, layers).eval()
        certify(model, torch.rand(4, 8), torch.zeros(4, dtype=torch.long), Linf(0.01))


@pytest.mark.parametrize("norm", ["batch", "none", "group", "layer", "mixture", "dual"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cnn_small", {}),
        ("preact_resnet18", {"width": 8}),
        ("resnet110", {"width": 4}),
        ("mlp", {"depth": 5, "width": 256}),  # two values a group are signs: not deeper
        ("vgg16", {"width": 8}),
    ],
    ids=str,
)
def test_deep_networks_of_ours_are_not_taken_for_others(norm, name, options):
    torch.manual_seed(0)
    options_of_build = {
        "shape": (3, 32, 32),
        "classes": 10,
        "norm": NORMS[norm](),
        "options": options,
    }
    model = build(name, **options_of_build)
    images = torch.rand(8, 3, 32, 32)
    model(images)
    certify(model.eval(), images, torch.arange(8), Linf(0.0), method="ibp")
