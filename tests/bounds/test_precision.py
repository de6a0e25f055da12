"""Products are exact while a certificate is made, and settings are as before after it."""

import contextlib

import pytest
import torch
from forwards import LABEL, Forward
from torch import nn

from advnorm.bounds import certify, is_certified, margin_bounds
from advnorm.threat import Linf


def test_certificates_are_not_made_under_autocast():
    model, images = nn.Linear(8, 3), torch.rand(4, 8)
    labels = torch.zeros(4, dtype=torch.long)
    for ask in (margin_bounds, certify, is_certified):
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            pytest.raises(ValueError, match="leave autocast before"),
        ):
            ask(model, images, labels, Linf(0.1))


def leaves():
    kinds = torch.backends
    return [
        kinds,
        kinds.cudnn,
        kinds.mkldnn,
        kinds.cudnn.conv,
        kinds.cudnn.rnn,
        kinds.cuda.matmul,
        kinds.mkldnn.conv,
        kinds.mkldnn.matmul,
    ]


def precisions() -> list[object]:
    older = []
    for read in (
        torch.get_float32_matmul_precision,
        lambda: torch.backends.cudnn.allow_tf32,
    ):
        try:
            older.append(read())
        except RuntimeError:  # it does not agree with the newer ones
            older.append(None)
    return [*(leaf.fp32_precision for leaf in leaves()), *older]


CHANGES = {
    "as it comes": lambda: None,
    "older matmul": lambda: torch.set_float32_matmul_precision("medium"),
    "older cudnn": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "all": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "one library": lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
    "one kind of one": lambda: setattr(
        torch.backends.mkldnn.conv, "fp32_precision", "bf16"
    ),
    "one kind": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "its convolutions": lambda: setattr(
        torch.backends.cudnn.conv, "fp32_precision", "ieee"
    ),
}


@pytest.fixture
def settings():
    """Put torch's settings back, whatever a test does to them."""
    before = [(leaf, leaf.fp32_precision) for leaf in leaves()]
    yield
    torch.set_float32_matmul_precision("highest")
    for leaf, precision in before[:3]:
        leaf.fp32_precision = precision
    torch.backends.cudnn.allow_tf32 = True
    for leaf, precision in before[3:]:
        leaf.fp32_precision = precision


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_products_are_exact_in_a_certificate_and_as_before_after_it(name, fails, settings):
    seen = []

    def forward(self, x):
        if type(x) is torch.Tensor:
            seen.append([leaf.fp32_precision for leaf in leaves()])
            if name != "its convolutions":
                assert not torch.backends.cudnn.allow_tf32
            if fails:
                raise KeyError("in the model")
        return self.layer(x)

    model = Forward(forward, nn.Linear(4, 3)).eval()
    CHANGES[name]()
    before = precisions()
    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        certify(model, torch.rand(2, 4), torch.tensor([0, 1]), Linf(0.01))
    assert precisions() == before
    assert seen and not {"tf32", "bf16"} & set().union(*seen)


def test_what_a_setting_inherits_it_goes_on_to_inherit(settings):
    torch.backends.fp32_precision = "tf32"
    certify(nn.Linear(2, 2), torch.rand(1, 2), LABEL, Linf(0.1))
    torch.backends.fp32_precision = "ieee"
    assert torch.backends.mkldnn.conv.fp32_precision == "ieee"


def test_bounds_do_not_depend_on_the_precision_of_products(settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 3))
    images, labels = torch.rand(32, 64), torch.zeros(32, dtype=torch.long)
    expected = margin_bounds(model, images, labels, Linf(0.01))
    torch.set_float32_matmul_precision("medium")  # of bfloat16, where that is fast
    margins = margin_bounds(model, images, labels, Linf(0.01))
    torch.testing.assert_close(margins, expected, rtol=1e-5, atol=1e-6)
