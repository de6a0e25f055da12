"""What holds for every registered model."""

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from advnorm import norms
from advnorm.models import MODELS, Standardize, build, options
from advnorm.models.imagenet_resnet import STAGES
from advnorm.norms import NORMS

IMAGENET = {f"resnet{depth}" for depth in STAGES}
FIXUP = [name for name in MODELS if name.startswith("fixup")]
SMALLEST = {"width": 8, "widen": 1}
VECTORS = {"linear", "mlp", "cnn_small", "cnn_medium", "cnn_large"}  # norms of vectors
LARGE = {"wide_resnet28_10", "fixup_wide_resnet28_10"}  # no width to set
DEEP = {"resnet338", "resnet518", "resnet638"}
SMALL = sorted(set(MODELS) - LARGE - DEEP)
FAMILIES = ["linear", "mlp", "lenet5", "cnn_cleverhans", "cnn_small", "vgg8", "preact_resnet18", "resnet20", "resnet18", "resnet50", "wide_resnet", "fixup_resnet20", "fixup_wide_resnet40_2"]  # fmt: skip


def fits(norm: str, name: str) -> bool:
    """Tell whether a norm makes sense in a model, on the quick input."""
    if name in FIXUP:
        return norm == "none" and name in SMALL
    if norm == "instance":  # of one value has no variance
        return name in SMALL and name not in VECTORS | IMAGENET | {"preact_resnet18"}
    return name in SMALL or (name, norm) == ("cnn_large", "batch")


def natural(name: str) -> tuple[int, ...]:
    """Return the input that the family was published for."""
    if name in {"linear", "mlp", "lenet5"}:
        return (1, 28, 28)
    if name == "cnn_cleverhans":
        return (1, 32, 32)
    return (3, 224, 224) if name in IMAGENET else (3, 32, 32)


def small(name: str) -> tuple[int, ...]:
    """Return a quick input."""
    if name.startswith(("vgg", "cnn")):
        return natural(name)
    return (3, 32, 32) if name in IMAGENET else (2, 8, 8)


def tiny(name: str, norm: str, standardize: nn.Module | None = None) -> nn.Module:
    smallest = {key: SMALLEST[key] for key in options(name) if key in SMALLEST}
    return build(
        name,
        shape=small(name),
        classes=3,
        norm=NORMS[norm](),
        standardize=standardize,
        options=smallest,
    )


def natural_norm(name: str) -> str:
    return "none" if name in FIXUP else "batch"


@pytest.mark.parametrize("name", MODELS)
def test_natural_input_gives_one_logit_a_class(name):
    assert logits_on_meta(name, natural(name)) == (2, 7)


@pytest.mark.parametrize(
    "name", ["vgg8", "vgg19", "preact_resnet18", "resnet20", "wide_resnet40_2"]
)
def test_image_of_imagenet_size_fits_where_features_are_pooled(name):
    assert logits_on_meta(name, (3, 224, 224)) == (2, 7)


def logits_on_meta(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    with torch.device("meta"):
        model = build(name, shape=shape, classes=7, norm=NORMS["none"]())
        return tuple(model(torch.zeros(2, *shape)).shape)


@pytest.mark.parametrize(
    ("norm", "name"),
    [(norm, name) for norm in NORMS for name in MODELS if fits(norm, name)],
)
def test_every_norm_trains_every_parameter(norm, name):
    model = tiny(name, norm)
    if name in FIXUP:  # whose zeros stop the gradient at first
        for parameter in model.parameters():
            if parameter.numel() > 1 and not parameter.any():
                nn.init.normal_(parameter, std=0.1)
    inputs = torch.rand(4, *small(name), requires_grad=True)
    with norms.route(model, clean=2):  # a mixture has parameters for either domain
        logits = model(inputs)
    nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()
    assert inputs.grad is not None and inputs.grad.isfinite().all()
    unmoved = [
        key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()
    ]
    # A shift before a batch statistic is no shift; rounding decides whether it is zero.
    assert [key for key in unmoved if not key.endswith("bias")] == []


@pytest.mark.parametrize("name", FAMILIES)
def test_standardization_comes_first(name):
    first = Standardize([0.5], [0.5])
    assert next(iter(tiny(name, natural_norm(name), first).children())) is first
    plain = tiny(name, natural_norm(name))
    assert type(next(iter(plain.children()))) is nn.Identity


@pytest.mark.parametrize(
    "name", ["linear", "lenet5", "vgg8", "preact_resnet18", "fixup_resnet20"]
)
def test_standardizing_inside_is_standardizing_outside(name):
    torch.manual_seed(1)
    inside = tiny(name, "none", Standardize([0.25], [0.5])).eval()
    torch.manual_seed(1)
    outside = tiny(name, "none").eval()
    images = torch.rand(2, *small(name))
    torch.testing.assert_close(inside(images), outside((images - 0.25) / 0.5))


@pytest.mark.parametrize("name", FAMILIES)
def test_seed_decides_the_weights(name):
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(
            torch.cat([p.flatten() for p in tiny(name, natural_norm(name)).parameters()])
        )
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.mark.parametrize("name", FAMILIES)
def test_graph_of_the_model_can_be_traced(name):
    model = tiny(name, "none", Standardize([0.5], [0.5])).eval()
    images = torch.rand(2, *small(name))
    torch.testing.assert_close(symbolic_trace(model)(images), model(images))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_what_it_is(name):
    assert MODELS.summary(name).endswith(".")
