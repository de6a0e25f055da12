"""Convert and collapse: the identity on outputs, and nothing is lost on the way."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.models import MODELS, build, options

KINDS = ["batch", "mixture", "dual", "borrowed", "affine"]
SMALL = {"width": 4, "depth": 2, "widen": 1}
SHAPES = {"lenet5": (1, 28, 28), "linear": (1, 5, 5), "mlp": (1, 5, 5)}
NORMED = [name for name in MODELS if not name.startswith("fixup")]
DEEP = {"resnet101", "resnet152", "resnet200", "resnet338", "resnet518", "resnet638"}


def zoo(name):
    """Return a small member of a family, in evaluation, with statistics of its own."""
    torch.manual_seed(0)
    chosen = {k: v for k, v in SMALL.items() if k in options(name)}
    if name == "wide_resnet":
        chosen["depth"] = 10
    shape = SHAPES.get(name, (3, 32, 32))
    model = build(name, shape=shape, classes=4, norm=norms.NORMS["batch"](), options=chosen)
    return scramble(model), torch.rand(2, *shape)


def scramble(model):
    """Give every batch norm statistics and parameters that matter."""
    for layer in norms.batch_norms(model):
        with torch.no_grad():
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
            layer.num_batches_tracked.fill_(7)
            if layer.affine:
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.normal_(0, 0.1)
    return model.eval()


@pytest.mark.parametrize("name", [name for name in NORMED if name not in DEEP])
@pytest.mark.parametrize("kind", KINDS)
def test_convert_then_collapse_is_the_identity_on_the_zoo(name, kind):
    model, x = zoo(name)
    with torch.no_grad():
        expected = model(x)
        converted = norms.convert(model, kind)
        for domain in ("clean", "adversarial"):
            with norms.route(converted, domain=domain):
                torch.testing.assert_close(converted(x), expected, rtol=1e-4, atol=1e-5)
            collapsed = norms.collapse(converted, domain)
            assert torch.equal(collapsed(x), expected)
    kinds = {
        type(m)
        for m in collapsed.modules()
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)
    }
    assert kinds and not any(
        type(m).__module__.startswith("advnorm.norms") for m in collapsed.modules()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEEP))
@pytest.mark.parametrize("kind", KINDS)
def test_convert_then_collapse_is_the_identity_on_the_deepest(name, kind):
    model, x = zoo(name)
    with torch.no_grad():
        expected = model(x)
        converted = norms.convert(model, kind)
        torch.testing.assert_close(converted(x), expected, rtol=1e-3, atol=1e-4)
        assert torch.equal(norms.collapse(converted, "clean")(x), expected)


class Nested(nn.Module):
    """Norms that are shared, nested in containers, frozen and fused with an activation."""

    def __init__(self):
        super().__init__()
        self.shared = nn.BatchNorm2d(4, eps=0.01, momentum=0.3)
        self.first = nn.Conv2d(3, 4, 3)
        self.blocks = nn.ModuleDict(
            {
                "a": nn.Sequential(nn.Conv2d(4, 4, 3), self.shared, nn.ReLU()),
                "b": nn.Sequential(nn.Conv2d(4, 4, 3), self.shared),
            }
        )
        self.fused = torch.ao.nn.intrinsic.BNReLU2d(nn.BatchNorm2d(4), nn.ReLU())
        self.flat = nn.BatchNorm1d(4, affine=False)
        self.frozen = nn.BatchNorm1d(4, momentum=None)
        self.frozen.requires_grad_(False)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = self.shared(self.first(x))
        x = self.fused(self.blocks["b"](self.blocks["a"](x)))
        return self.out(self.frozen(self.flat(x.mean((2, 3)))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shared_nested_fused_and_frozen_norms(kind, dtype):
    model = scramble(Nested()).to(dtype).train()
    model.frozen.eval()
    x = torch.rand(5, 3, 10, 10, dtype=dtype)
    converted = norms.convert(model, kind)
    assert converted.shared is converted.blocks["a"][1] is converted.blocks["b"][1]
    assert converted.shared is not model.shared
    assert not any(p.requires_grad for p in converted.frozen.parameters())
    assert all(p.dtype == dtype for p in converted.parameters())
    assert not converted.frozen.training and converted.shared.training
    assert type(model.shared) is nn.BatchNorm2d, "the original was changed"
    for bn in norms.batch_norms(converted.shared):
        assert (bn.eps, bn.momentum) == (0.01, 0.3) and bn.num_batches_tracked == 7
    model.eval()
    converted.eval()
    collapsed = norms.collapse(converted, "adversarial")
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(converted(x), expected)
        assert torch.equal(collapsed(x), expected)
    assert collapsed.shared is collapsed.blocks["a"][1]
    assert type(collapsed.flat) is nn.BatchNorm1d and not collapsed.flat.affine
    assert collapsed.frozen.momentum is None and not collapsed.frozen.weight.requires_grad
    assert collapsed.state_dict().keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(collapsed.state_dict()[key], value), key


def test_a_collapsed_branch_is_what_that_branch_answers():
    model, x = zoo("cnn_small")
    mixed = norms.convert(model, "mixture")
    for layer in norms.batch_norms(mixed):
        layer.running_mean.normal_(0, 0.3)
    with torch.no_grad():
        mixed(x)  # one branch is enough to know 2-D from 1-D
        for domain in ("clean", "adversarial"):
            with norms.route(mixed, domain=domain):
                assert torch.equal(norms.collapse(mixed, domain)(x), mixed(x))
    assert not torch.equal(
        norms.collapse(mixed, "clean")(x), norms.collapse(mixed, "adversarial")(x)
    )


def test_a_collapsed_model_runs_without_the_package(tmp_path):
    model, x = zoo("mlp")
    model(x)
    plain = nn.Sequential(
        nn.Flatten(), *norms.collapse(norms.convert(model, "dual")).hidden
    )
    torch.save([plain, x, plain(x)], tmp_path / "model.pt")
    code = (
        "import sys, torch\nsys.modules['advnorm'] = None\n"
        f"model, x, y = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "assert torch.equal(model(x), y)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_norm_without_running_statistics_is_converted_where_that_makes_sense():
    model = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))
    x = torch.randn(6, 3)
    for kind in ("mixture", "borrowed", "affine"):
        converted = norms.convert(model, kind)
        torch.testing.assert_close(converted(x), model(x))
        torch.testing.assert_close(norms.collapse(converted)(x), model(x))
    with pytest.raises(ValueError, match="'0' has no running statistics"):
        norms.convert(model, "dual")


def test_options_reach_the_layers():
    borrowed = norms.convert(
        nn.Sequential(nn.BatchNorm1d(3)), "borrowed", options={"lender": "adversarial"}
    )
    assert borrowed[0].lender == "adversarial"
    ranked = nn.Sequential(nn.SyncBatchNorm(3))
    assert norms.convert(ranked, "mixture")[0].clean.sync
    assert not norms.convert(ranked, "mixture", options={"sync": False})[0].clean.sync


class Renamed(nn.BatchNorm2d):
    """A batch norm under another name."""


def test_a_subclass_that_is_only_batch_norm_is_converted():
    assert isinstance(norms.convert(nn.Sequential(Renamed(3)), "dual")[0], norms.DualNorm)


def hooked():
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].register_forward_hook(lambda *a: None)
    return model


def hooked_backward():
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].register_full_backward_hook(lambda *a: None)
    return model


def prehooked():
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].register_forward_pre_hook(lambda *a: None)
    return model


def with_buffer():
    model = nn.Sequential(nn.BatchNorm2d(3))
    model[0].register_buffer("mask", torch.ones(3))
    return model


def qat():
    return nn.Sequential(
        torch.ao.nn.intrinsic.qat.ConvBn2d(
            3, 4, 3, qconfig=torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        )
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "make, kind, settings, words",
    [
        (hooked, "dual", {}, "'0' .*hooks"),
        (hooked_backward, "dual", {}, "'0' .*hooks"),
        (prehooked, "dual", {}, "'0' .*hooks"),
        (with_buffer, "dual", {}, "'0' .*buffers"),
        (qat, "dual", {}, "fused into a ConvBn2d"),
        (lambda: nn.Sequential(nn.LazyBatchNorm2d()), "dual", {}, "'0' is lazy"),
        (lambda: nn.Sequential(nn.Linear(2, 2)), "dual", {}, "no batch norm"),
        (lambda: nn.Sequential(nn.BatchNorm2d(3)), "duel", {}, "did you mean 'dual'"),
        (
            lambda: nn.Sequential(nn.BatchNorm2d(3)),
            "dual",
            {"eps": 1.0},
            "taken from each layer",
        ),
        (lambda: nn.Sequential(nn.BatchNorm2d(3)), "borrowed", {"lend": "x"}, "'lender'"),
        (lambda: nn.Sequential(norms.DualNorm(3)), "mixture", {}, "collapse it first"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(make, kind, settings, words):
    with pytest.raises((ValueError, NotImplementedError), match=words):
        norms.convert(make(), kind, options=settings)


def test_what_cannot_be_collapsed_is_refused_by_name():
    dual = nn.Sequential(norms.DualNorm(3))
    dual(torch.randn(4, 3))
    with pytest.raises(NotImplementedError, match="'0' is a DualNorm whose gate"):
        norms.collapse(dual)
    with pytest.raises(ValueError, match="'0' has had no input"):
        norms.collapse(nn.Sequential(norms.MixtureNorm(3)))
    with pytest.raises(ValueError, match="no domain"):
        norms.collapse(dual, "dirty")


@pytest.mark.parametrize(
    "value, words", [(torch.nan, "NaN"), (torch.inf, "NaN"), (-1.0, "negative")]
)
def test_statistics_that_are_no_numbers_are_refused_by_layer(value, words):
    model = nn.Sequential(nn.Linear(3, 3), norms.MixtureNorm(3))
    norms.check_statistics(model)
    model[1].clean.running_var[1] = value
    with pytest.raises(ValueError, match=rf"'1\.clean'.*{words}|{words}.*'1\.clean'"):
        norms.check_statistics(model)


def _fused():
    layer = nn.BatchNorm1d(3)
    plain = layer.forward
    layer.forward = lambda x: plain(x).relu()
    return nn.Sequential(layer)


def _tied(kind=nn.BatchNorm1d):
    one, other = nn.BatchNorm1d(3), kind(3)
    other.weight = one.weight
    return nn.Sequential(one, other)


def _with_a_parameter():
    layer = nn.BatchNorm1d(3)
    layer.temperature = nn.Parameter(torch.ones(1))
    return nn.Sequential(layer)


def _with_a_state_hook():
    layer = nn.BatchNorm1d(3)
    layer.register_state_dict_post_hook(lambda *given: None)
    return nn.Sequential(layer)


def _in_a_group():
    return nn.Sequential(nn.SyncBatchNorm(3, process_group="some"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_fused, "'0' .*does more than batch norm"),
        (_tied, "'0' and '1' share a parameter"),
        (lambda: _tied(nn.LayerNorm), "'0' and '1' share a parameter"),
        (_with_a_parameter, "'0' .*parameters"),
        (_with_a_state_hook, "'0' .*hooks"),
        (_in_a_group, "'0' .*process group"),
    ],
)
def test_what_a_new_layer_would_lose_is_refused(make, words, kind):
    with pytest.raises(NotImplementedError, match=words):
        norms.convert(make(), kind)


@pytest.mark.parametrize("kind", ["batch", "mixture", "dual", "affine"])
def test_hooks_are_not_lost_by_collapsing(kind):
    model = norms.convert(nn.Sequential(nn.BatchNorm1d(3)), kind)
    model(torch.rand(4, 3))
    model[0].register_forward_hook(lambda layer, inputs, output: output / 2)
    with pytest.raises(NotImplementedError, match=r"'0' .*hooks"):
        norms.collapse(model)
