"""Arguments, settings and replaced code that rules know nothing of are refused by name."""

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from advnorm import evaluate
from advnorm.bounds import (
    METHODS,
    certify,
    is_certified,
    margin_bounds,
)
from advnorm.bounds.operations import FUNCTIONS, LAYERS, register
from advnorm.threat import Linf

LABELS = torch.tensor([0, 1])


class Between(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function, width=16, hidden=64, layer=None) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, hidden), nn.Linear(hidden, 3)
        self.function, self.layer = function, layer

    def forward(self, x: Tensor) -> Tensor:
        """Return three logits."""
        return self.last(self.function(self, self.first(x)))


# --- the reported ones: a sum or a mean in another type -----------------------------------

WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NARROW = [torch.bfloat16, torch.float16]
REPORTED = {
    **{
        f"sum {dtype}": lambda s, h, d=dtype: h[:, :, None].sum(2, dtype=d) * 1.0
        for dtype in WHOLE
    },
    **{
        f"{name} {dtype}": lambda s, h, n=name, d=dtype: (
            getattr((h + 10)[:, :, None], n)(2, dtype=d) * torch.ones(1, 64) - 10
        )
        for dtype in NARROW
        for name in ("sum", "mean")
    },
    "torch.sum": lambda s, h: torch.sum(h[:, :, None], 2, dtype=torch.int32) * 1.0,
}


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("name", REPORTED)
def test_sums_and_means_in_another_type_are_refused(name, method):
    torch.manual_seed(0)
    model, images = Between(REPORTED[name]).eval(), torch.rand(64, 16)
    with torch.no_grad():
        labels = model(images).argmax(1)
    for ask in (margin_bounds, certify, is_certified):
        with pytest.raises(
            NotImplementedError, match=r"(sum|mean).*argument dtype=torch\."
        ):
            ask(model, images, labels, Linf(0.02), method=method)


@pytest.mark.parametrize("method", list(METHODS))
def test_an_evaluation_behind_certificates_refuses_them_too(method):
    torch.manual_seed(0)
    model, images = Between(REPORTED["sum torch.int64"]).eval(), torch.rand(64, 16)
    with torch.no_grad():
        labels = model(images).argmax(1)
    with pytest.raises(
        (NotImplementedError, ValueError), match=r"argument dtype=torch\.int64"
    ):
        evaluate(model, images, labels, Linf(0.02), conditions=["fgsm"], certificate=method)


# --- arguments ----------------------------------------------------------------------------

ARGUMENTS = {
    "out": (lambda s, h: torch.add(h, 1, out=torch.empty(2, 8)), "out"),
    "out that is None": (
        lambda s, h: torch.sum(h[:, None], 1, out=None),
        "argument out=None",
    ),
    "alpha": (lambda s, h: torch.add(h, h, alpha=torch.tensor(2.0)), "argument alpha="),
    "alpha that is true": (lambda s, h: torch.add(h, h, alpha=True), "argument alpha=True"),
    "rounding": (
        lambda s, h: h.div(3, rounding_mode="trunc"),
        r"\(div\) with the argument rounding_mode='trunc'.*leave it out",
    ),
    "a type to view": (lambda s, h: h.view(torch.int32), r"argument shape=torch\.int32"),
    "a complex number": (lambda s, h: h * 1j, "argument other=1j"),
    "an endless number": (lambda s, h: h + float("inf"), "argument other=inf"),
    "mode": (lambda s, h: F.pad(h, (1, 1), "wrap"), "argument mode='wrap'"),
    "index": (lambda s, h: h[True], "argument index=True"),
    "a fourth number": (lambda s, h: F.elu_(h * 1, 1.0, 2.0, 3.0), "argument"),
    "scale": (lambda s, h: F.elu_(h * 1, 1.0, 2.0), "argument inplace=2.0"),
    "approximate": (lambda s, h: F.gelu(h, approximate="sigmoid"), "argument approximate"),
    "indices": (
        lambda s, h: F.max_pool1d(h[:, None], 1, return_indices=True)[0][:, 0],
        "argument return_indices=True|max_pool1d_with_indices",
    ),
    "divisor": (
        lambda s, h: F.avg_pool2d(h.view(-1, 1, 2, 4), 1, divisor_override=-1).flatten(1),
        "argument divisor_override=-1",
    ),
    "training": (lambda s, h: torch.dropout(h, 0.5, train=False), "argument train=False"),
    "in place by place": (lambda s, h: h.mul_(torch.ones(8)).add_(h), "in place"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_no_rule_reads_is_refused_by_name(name):
    function, words = ARGUMENTS[name]
    model = Between(function, 4, 8).eval()
    with pytest.raises(NotImplementedError, match=words):
        is_certified(model, torch.rand(2, 4), LABELS, Linf(0.1))


UNDERSTOOD = {
    "dtype": lambda s, h: h[:, None].sum(1, dtype=None),
    "axis": lambda s, h: h[:, None].mean(axis=1, keepdim=False),
    "layout": lambda s, h: h.contiguous(memory_format=torch.contiguous_format),
    "rounding": lambda s, h: torch.div(h, 3, rounding_mode=None),
    "the tensor by name": lambda s, h: torch.add(input=h, other=1, alpha=2),
    "tensors by name": lambda s, h: torch.cat(tensors=[h[:, 4:], h[:, :4]], dim=1),
    "sizes": lambda s, h: h.view(h.size(0), h.size(1), 1).flatten(1) / h.shape[1],
    "in place": lambda s, h: F.relu(h, True),
}


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_an_argument_that_a_rule_reads_has_bounds(name, method):
    model, images = (
        Between(UNDERSTOOD[name], 4, 8).double().eval(),
        torch.rand(2, 4).double(),
    )
    logits = model(images).detach()
    margins = margin_bounds(model, images, LABELS, Linf(0.0), method=method).detach()
    torch.testing.assert_close(margins, logits.gather(1, LABELS[:, None]) - logits)


@pytest.mark.parametrize("entry", [LAYERS[nn.ReLU], FUNCTIONS["add"]])
def test_an_operation_has_one_entry(entry):
    with pytest.raises(ValueError, match=f"{entry.name}.* already: edit that one"):
        register(entry)


# --- settings of layers -------------------------------------------------------------------


def changed(layer: nn.Module, **values: object) -> nn.Module:
    for name, value in values.items():
        setattr(layer, name, value)
    return layer


SETTINGS = {
    "ReLU6": changed(nn.ReLU6(), max_val=0.5),
    "ZeroPad2d": changed(nn.ZeroPad2d(0), value=-1.0),
    "CELU": nn.CELU(-1.0),
    "Softplus": nn.Softplus(-1.0),
    "AvgPool2d": nn.AvgPool2d(1, divisor_override=-1),
    "MaxPool2d": nn.MaxPool2d(1, return_indices=True),
    "kernel_size": changed(nn.Conv2d(1, 1, 1), kernel_size=(3, 3)),
    "out_channels": changed(nn.Conv2d(1, 1, 1), out_channels=2),
}


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_no_rule_is_for_is_refused_by_name(name, method):
    def function(s: Between, h: Tensor) -> Tensor:
        output = s.layer(h.view(-1, 1, 2, 4))
        return (output[0] if name == "MaxPool2d" else output).flatten(1)

    model = Between(function, 4, 8, SETTINGS[name]).eval()
    kind = type(SETTINGS[name])
    (setting, *_) = (s for s in LAYERS[kind].settings if not s.fits(SETTINGS[name]))
    words = re.escape(f"'layer' ({kind.__name__}): no certificate with {setting.name}=")
    with pytest.raises(NotImplementedError, match=words):
        is_certified(model, torch.rand(2, 4), LABELS, Linf(0.1), method=method)


# --- code that was replaced ---------------------------------------------------------------


def refused(model: nn.Module, words: str) -> None:
    with pytest.raises(NotImplementedError, match=words):
        is_certified(model.eval(), torch.rand(2, 4), LABELS, Linf(0.1))


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_class_whose_forward_was_replaced_is_refused(monkeypatch):
    original = nn.ReLU.forward
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: original(self, x) + 0 * x)
    refused(plain(), "ReLU.forward was replaced")


def test_a_method_of_one_layer_that_was_replaced_is_refused():
    model = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.Flatten())
    before = model[1]._conv_forward
    model[1]._conv_forward = lambda *number_labels: before(*number_labels).round()
    refused(model, "'?1'? has forward hooks or a forward of its own")


def test_a_model_with_a_call_of_its_own_is_refused():
    class Calls(nn.Sequential):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(x.round())

    refused(Calls(*plain()), "Calls has a __call__ of its own")


def test_hooks_on_all_modules_are_refused_whatever_they_do():
    hook = nn.modules.module.register_module_forward_hook(lambda *number_labels: None)
    try:
        refused(plain(), "hooks on all modules")
    finally:
        hook.remove()


class Other(Tensor):
    """A tensor of another class."""


def test_weights_and_images_of_another_class_are_refused():
    model = plain()
    model[0].weight = nn.Parameter(torch.rand(8, 4).as_subclass(Other))
    refused(model, "'weight' of the class")
    for images in (torch.rand(2, 4).as_subclass(Other), torch.rand(2, 4) + 0j):
        with pytest.raises(ValueError, match="plain tensor of real numbers"):
            is_certified(plain(), images, LABELS, Linf(0.1))


def test_parametrized_weights_are_refused():
    model = plain()
    parametrizations.weight_norm(model[0])
    refused(model, "ParametrizedLinear")


def test_a_forward_that_writes_into_buffers_is_refused():
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if isinstance(x, Tensor):  # tracing would refuse this by itself
                self.calls += 1
            return self.net(x)

    refused(Counts(), "changes its own parameters or buffers")


def test_arithmetic_with_the_number_of_samples_is_refused():
    """It is the same for the batches that the model is asked about, of 3 and 4."""
    refused(Between(lambda s, h: h * (1 + (h.size(0) > 4)), 4, 8), "number of samples")
    refused(Between(lambda s, h: h / h.numel(), 4, 8), "number of samples")
    refused(Between(lambda s, h: h / h.shape[-2], 4, 8), "number of samples")


def under_autocast(s: Between, h: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return 1e-9 * s.layer(h) + h


def test_autocast_in_forward_is_refused_however_little_it_rounds():
    refused(Between(under_autocast, 4, 8, nn.Linear(8, 8)), "autocast in its forward")


def test_a_value_that_is_rounded_to_another_type_is_refused():
    def function(s: Between, h: Tensor) -> Tensor:
        zeros = torch.zeros(2, 8, dtype=torch.float16)
        zeros += h
        return zeros * torch.ones(1)

    refused(Between(function, 4, 8), "in place on a constant")


def test_arrays_lists_and_any_integers_are_certified_as_tensors_are():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    images = torch.rand(6, 1, 4, 4)
    labels = model(images).argmax(1)
    expected = is_certified(model, images, labels, Linf(0.01))
    for number_labels in (labels.tolist(), labels.numpy(), labels.to(torch.uint16)):
        assert torch.equal(
            is_certified(model, images.numpy(), number_labels, Linf(0.01)), expected
        )
        assert torch.equal(
            certify(model, images, number_labels, Linf(0.01)).certified, expected
        )
    with pytest.raises(
        ValueError,
        match="labels are a tensor, a NumPy array or a list of numbers, not dict",
    ):
        is_certified(model, images, {"a": 1}, Linf(0.01))


def test_a_function_and_a_module_that_is_no_part_of_the_model_are_refused():
    inner = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    images, labels = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)

    class Outer(nn.Module):
        def forward(self, x):
            return inner(x)

    with pytest.raises(NotImplementedError, match="not a function: give the model"):
        is_certified(lambda x: inner(x), images, labels, Linf(0.1))
    with pytest.raises(NotImplementedError, match="calls a module that is no part of it"):
        is_certified(Outer(), images, labels, Linf(0.1))
