"""Any layer to any norm: the identity where promised, activations kept, refusals by name."""

from copy import deepcopy

import foreign_layers as foreign
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.models import Standardize

WITH_STATISTICS = ["batch", "mixture", "dual", "borrowed", "affine"]
ACTIVATIONS = {
    "with modules": F.silu,
    "with dropout": F.relu,
    "sync with modules": F.hardswish,
    "frozen with modules": F.gelu,
    "activation in code": F.relu,
}


def network(kind, dtype=torch.float32):
    torch.manual_seed(0)
    model = foreign.scramble(foreign.Network(foreign.LAYERS[kind])).to(dtype)
    return model, torch.rand(5, 3, 9, 9, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", WITH_STATISTICS)
@pytest.mark.parametrize("kind", foreign.LAYERS)
def test_with_running_statistics_the_copy_computes_the_same_on_every_route(
    kind, target, dtype
):
    model, x = network(kind, dtype)
    before = deepcopy(model.state_dict())
    model.last.eval()  # flags differ between layers
    converted = norms.convert(model, target)
    assert norms.has_norm(converted, target)
    assert {p.dtype for p in converted.parameters()} == {dtype}
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert converted.shared is converted.again[0]
    flags = {layer.training for layer in norms.batch_norms(converted.last)}
    assert flags == {False} and all(b.training for b in norms.batch_norms(converted.shared))
    model.eval()
    converted.eval()
    tolerance = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 1e-12}
    for form in (torch.contiguous_format, torch.channels_last):
        images = x.contiguous(memory_format=form)
        for domain in ("clean", "adversarial"):
            with torch.no_grad(), norms.route(converted, domain=domain):
                torch.testing.assert_close(converted(images), model(images), **tolerance)
    plain = norms.collapse(converted, "clean")
    torch.testing.assert_close(plain(x), model(x), **tolerance)
    homes = {type(layer).__module__ for layer in plain.modules()}
    assert not any(home.startswith("advnorm") for home in homes)


@pytest.mark.parametrize("target", ["group", "layer", "instance", "none"])
@pytest.mark.parametrize("kind", foreign.LAYERS)
def test_norms_without_running_statistics_take_the_parameters_and_keep_the_rest(
    kind, target
):
    """One layer alone: gamma and beta of the source, the target's moments, then the rest."""
    if kind == "functional":
        return  # more than one layer: below
    torch.manual_seed(0)
    layer = foreign.scramble(foreign.LAYERS[kind](4)).eval()
    x = torch.randn(5, 4, 6, 6)
    converted = norms.convert_with_notes(nn.Sequential(layer), target)
    eps = layer.eps
    groups = {"group": 2, "layer": 1, "instance": 4}
    expected = x
    if target != "none":
        expected = F.group_norm(x, groups[target], layer.weight, layer.bias, eps)
    expected = ACTIVATIONS.get(kind, lambda value: value)(expected)
    torch.testing.assert_close(converted.model.eval()(x), expected)
    (note,) = converted.notes.values()
    assert note.endswith("statistics") and f"to {target}: kept" in note
    assert ("act" in note) == ("modules" in kind or "dropout" in kind)
    fixed = kind.startswith(("frozen", "fixed"))
    assert not (fixed and any(p.requires_grad for p in converted.model.parameters()))


@pytest.mark.parametrize("target", norms.NORMS)
def test_functional_calls_become_layers_and_the_rest_of_the_module_stays(target):
    torch.manual_seed(0)
    module = foreign.scramble(foreign.Functional(4)).eval()
    x = torch.randn(5, 4, 6, 6)
    converted = norms.convert(nn.Sequential(module), target).eval()
    assert norms.count_norms(converted) == ({} if target == "none" else {target: 1})
    names = {name for name, _ in converted.named_parameters()}
    assert {"0.conv.weight", "0.conv.bias", "0.other"} <= names and "0.weight" not in names
    if target == "none":
        expected = F.relu(module.conv(x)) * module.other
        torch.testing.assert_close(converted(x), expected)
    converted.train()(x).sum().backward()
    assert all(p.grad is not None for p in norms.norm_parameters(converted)) or (
        target in ("mixture", "affine")
    )


def test_a_converted_functional_call_trains_as_the_call_did():
    torch.manual_seed(0)
    module = foreign.scramble(foreign.Functional(4))
    twin = norms.convert(module, "batch")
    x = torch.randn(5, 4, 6, 6)
    torch.testing.assert_close(twin(x), module(x))
    (layer,) = norms.batch_norms(twin)
    torch.testing.assert_close(layer.running_mean, module.running_mean)
    torch.testing.assert_close(layer.running_var, module.running_var)


def test_an_activation_inside_acts_in_training_too_and_dropout_stays_random():
    torch.manual_seed(0)
    model = nn.Sequential(foreign.WithModules(4, nn.ReLU, lambda: nn.Dropout(0.5)))
    twin, x = norms.convert(model, "batch"), torch.randn(6, 4, 5, 5)
    outputs = []
    for network in (model, twin):
        torch.manual_seed(1)
        outputs.append(network(x))
    torch.testing.assert_close(*outputs)
    assert (outputs[0] == 0).float().mean() > 0.6
    assert list(twin[0]._modules) == ["norm", "drop", "act"]


@pytest.mark.parametrize("source", ["group", "instance"])
def test_without_batch_norms_group_and_instance_norms_are_converted(source):
    layer = foreign.scramble(norms.NORMS[source]()(4))
    model = nn.Sequential(nn.Conv2d(3, 4, 1), layer)
    converted = norms.convert_with_notes(model, "mixture")
    assert norms.has_norm(converted.model, "mixture")
    assert converted.notes["1"].endswith("kept parameters, not statistics")
    assert torch.equal(converted.model[1].clean.weight, layer.weight)
    with_batch = norms.convert(nn.Sequential(nn.BatchNorm2d(4), layer), "affine")
    assert norms.count_norms(with_batch) == {"affine": 1, source: 1}


class Doubled(foreign.Frozen):
    """It has what a batch norm has, and computes twice of it."""

    def forward(self, x):
        return 2 * super().forward(x)


class Computed(foreign.Functional):
    """The weight of its batch norm is computed."""

    def normalize(self, x):
        mean, var = self.running_mean, self.running_var
        return F.batch_norm(x, mean, var, self.weight.abs(), self.bias)


class Branching(foreign.Functional):
    """Its forward depends on values."""

    def forward(self, x):
        return self.normalize(x) if x.sum() > 0 else x


class DropsInCode(foreign.Functional):
    """It drops features by code that a traced graph would fix to one mode."""

    def forward(self, x):
        return F.dropout(self.normalize(x), training=self.training)


class AlwaysMoves(foreign.Functional):
    """It normalizes by the batch in evaluation, and moves its statistics."""

    def normalize(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, training=True)


class GroupWithActivation(nn.GroupNorm):
    """A group norm with an activation of its own."""

    def forward(self, x):
        return super().forward(x).relu()


def hooked(module):
    module.register_forward_hook(lambda *values: None)
    return module


@pytest.mark.parametrize("target", ["mixture", "group", "none"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Doubled(4), r"'0' \(Doubled\) has running statistics, but computes"),
        (lambda: Computed(4), r"'0' \(Computed\).*that it computes"),
        (lambda: Branching(4), r"'0' \(Branching\).*cannot be traced \(.+\)"),
        (lambda: DropsInCode(4), r"'0' \(DropsInCode\).*other steps in training"),
        (lambda: AlwaysMoves(4), r"'0' \(AlwaysMoves\).*running ones in evaluation"),
        (lambda: hooked(foreign.Functional(4)), r"'0' \(Functional\).*hooks"),
        (lambda: hooked(foreign.WithModules(4)), r"'0' \(WithModules\).*hooks"),
        (lambda: hooked(foreign.Frozen(4)), r"'0' \(Frozen\).*hooks"),
        (lambda: GroupWithActivation(2, 4), r"'0' is a GroupWithActivation"),
    ],
)
def test_what_is_refused_says_why(make, words, target):
    with pytest.raises(NotImplementedError, match=words):
        norms.convert(nn.Sequential(make()), target)


def test_vectors_have_no_instance_norm():
    with pytest.raises(ValueError, match=r"'0' normalizes vectors"):
        norms.convert(nn.Sequential(nn.BatchNorm1d(4)), "instance")


def test_options_of_the_target_reach_it():
    model = nn.Sequential(nn.BatchNorm2d(8, eps=0.5))
    converted = norms.convert(model, "group", options={"groups": 4})
    assert (converted[0].num_groups, converted[0].eps) == (4, 0.5)
    with pytest.raises(ValueError, match="taken from each layer"):
        norms.convert(model, "layer", options={"affine": False})
    with pytest.raises(ValueError, match="groups"):
        norms.convert(model, "none", options={"groups": 4})


def test_other_modules_with_tensors_of_such_names_are_left_alone():
    class Named(nn.Module):
        """Its norm is called batch_norm, and its forward depends on values."""

        def __init__(self):
            super().__init__()
            self.batch_norm = nn.BatchNorm2d(3)

        def forward(self, x):
            return self.batch_norm(x) if x.sum() > 0 else x

    model = nn.Sequential(Standardize([0.5] * 3, [0.2] * 3), Named(), nn.PReLU())
    converted = norms.convert(model, "dual")
    assert isinstance(converted[1], Named) and norms.has_norm(converted, "dual")


class StandardizedConv(nn.Conv2d):
    """A convolution that calls batch norm to standardize its weights, not its input."""

    def forward(self, x):
        flat = self.weight.reshape(1, self.out_channels, -1)
        gain = 0.5 * torch.ones_like(self.weight[:, 0, 0, 0])
        weight = F.batch_norm(flat, None, None, weight=gain, training=True, momentum=0.0)
        return self._conv_forward(x, weight.reshape_as(self.weight), self.bias)


@pytest.mark.parametrize("name", norms.NORMS)
def test_standardized_weights_are_no_norm(name):
    model = nn.Sequential(StandardizedConv(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    foreign.scramble(model)
    conversion = norms.convert_with_notes(model, name)
    assert list(conversion.notes) == ["1"]
    assert type(conversion.model[0]) is StandardizedConv
    if name in WITH_STATISTICS:
        x = torch.rand(2, 3, 6, 6)
        assert torch.allclose(conversion.model(x), model(x), atol=1e-6)


def test_a_model_with_standardized_weights_alone_has_no_norm():
    with pytest.raises(
        ValueError, match=r"no batch norm to convert, .*: build it with one, or"
    ):
        norms.convert(nn.Sequential(StandardizedConv(3, 4, 3)), "mixture")
