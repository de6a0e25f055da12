"""Exported networks compute what the model does, where advnorm cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import advnorm
from advnorm import models, norms
from advnorm.norms import NORMS
from advnorm.norms.route import DOMAINS
from advnorm.runs.export.inference import inference_copy

FILES = {"torch": "net.py", "torchscript": "net.pt", "onnx": "net.onnx"}
FAMILIES = {  # a member of each family, as small as it gets, and its input
    "linear": ((1, 5, 5), {}),
    "mlp": ((7,), {"width": 8}),
    "lenet5": ((1, 8, 8), {}),
    "cnn_small": ((1, 14, 14), {"width": 2}),
    "cnn_medium": ((1, 20, 20), {"width": 2}),
    "cnn_cleverhans": ((1, 28, 28), {}),
    "vgg11": ((3, 32, 32), {"width": 2}),
    "resnet20": ((3, 8, 8), {"width": 2, "recompute": True}),
    "resnet18": ((3, 32, 32), {"width": 2}),
    "resnet50": ((3, 32, 32), {"width": 2}),
    "preact_resnet18": ((3, 8, 8), {"width": 2}),
    "wide_resnet": ((3, 8, 8), {"depth": 10, "widen": 1, "dropout": 0.3}),
    "fixup_resnet20": ((3, 8, 8), {"width": 2}),
    "fixup_wide_resnet": ((3, 8, 8), {"depth": 10, "widen": 1}),
}


def network(name="lenet5", norm="batch", shape=(1, 8, 8), options=None, per_image=False):
    """Build a model whose statistics differ between the domains, and from their start."""
    torch.manual_seed(0)
    moments = [0.4] * shape[0], [0.3] * shape[0]
    first = models.PerImageStandardize() if per_image else models.Standardize(*moments)
    model = models.build(
        name,
        shape=shape,
        classes=5,
        norm=NORMS[norm](),
        standardize=first,
        options=options,
    )
    for parameter in model.parameters():  # zeros of Fixup, ones of norms
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    for _ in range(3):
        images = torch.rand(16, *shape)
        images[8:] = 1 - images[8:] ** 2
        with norms.route(model, clean=8):
            model(images)
    return model.eval()


def save_expected(folder, model, branch, images):
    with torch.no_grad(), norms.route(model, domain=branch or "adversarial"):
        logits = model(images)
    save_file({"images": images, "logits": logits}, folder / "expected.safetensors")


def export_into(folder, model, formats, *, shape, branch=None):
    folder.mkdir()
    images = torch.rand(9, *shape)
    for to in formats:
        out = folder / FILES[to]
        advnorm.export(model, to=to, out=out, branch=branch, images=images)
    save_expected(folder, model, branch, images)


BRANCHED = ("mixture", "affine")
NAMES = [
    f"{norm}@{branch}" if branch else norm
    for norm in NORMS
    for branch in (DOMAINS if norm in BRANCHED else (None,))
]
ONE_DOMAIN = ("batch", "group", "instance", "layer", "median", "none")
ONNX = ["affine@adversarial", "borrowed", "dual", "mixture@clean", "one_domain"]
"""Each takes seconds; in ``one_domain`` all norms of one domain follow each other."""


def one_domain_norms():
    torch.manual_seed(0)
    layers = [models.PerImageStandardize()]
    for channels, norm in zip((1, 4, 4, 4, 4, 4), ONE_DOMAIN, strict=True):
        layers += [nn.Conv2d(channels, 4, 3), NORMS[norm]()(4), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 2 * 2, 5))
    model(torch.rand(16, 1, 14, 14))
    return model.eval()


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    """Export many networks; load all of them in one process without advnorm."""
    root = tmp_path_factory.mktemp("exported")
    for name in NAMES:
        norm, _, branch = name.partition("@")
        formats = FILES if name in ONNX else ["torch", "torchscript"]
        model = network(norm=norm)
        export_into(root / name, model, formats, shape=(1, 8, 8), branch=branch or None)
    export_into(root / "one_domain", one_domain_norms(), FILES, shape=(1, 14, 14))
    for name, (shape, options) in FAMILIES.items():
        norm = "none" if "fixup" in name else "dual" if name == "resnet20" else "batch"
        model = network(name, norm, shape, options, per_image=name == "vgg11")
        export_into(root / name, model, ["torch"], shape=shape)
    return load_elsewhere(root)


def load_elsewhere(root):
    """Return the differences of logits in a process that cannot import advnorm."""
    script = Path(__file__).with_name("load_exported.py")
    done = subprocess.run(
        [sys.executable, script, root], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("to", ["torch", "torchscript"])
@pytest.mark.parametrize("name", [*NAMES, "one_domain"])
def test_every_norm_loads_without_advnorm(differences, name, to, rows):
    assert differences[f"{name} {to} {rows}"] <= 1e-4


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("name", ONNX)
def test_every_norm_runs_in_onnxruntime(differences, name, rows):
    assert differences[f"{name} onnx {rows}"] <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONNX])
def test_every_norm_and_branch_alone_runs_in_onnxruntime(name, tmp_path):
    norm, _, branch = name.partition("@")
    model = network(norm=norm)
    export_into(tmp_path / "net", model, ["onnx"], shape=(1, 8, 8), branch=branch or None)
    differences = load_elsewhere(tmp_path)
    assert {*differences} == {"net onnx 1", "net onnx 7"}
    assert max(differences.values()) <= 1e-4


def test_onnx_is_tested_with_all_norms():
    assert {*ONE_DOMAIN, *(name.partition("@")[0] for name in ONNX[:-1])} == {*NORMS}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_loads_without_advnorm(differences, name):
    assert differences[f"{name} torch 7"] <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_runs_in_onnxruntime(name, tmp_path):
    shape, options = FAMILIES[name]
    model = network(name, "none" if "fixup" in name else "dual", shape, options)
    export_into(tmp_path / "net", model, ["onnx", "torchscript"], shape=shape)
    assert max(load_elsewhere(tmp_path).values()) <= 1e-4


def test_the_families_are_all_there():
    modules = {unwrapped(name).__module__ for name in models.MODELS}
    assert modules == {unwrapped(name).__module__ for name in FAMILIES}


def unwrapped(name):
    entry = models.MODELS[name]
    return getattr(entry, "func", entry)


def test_the_branches_differ():
    model, images = network(norm="mixture"), torch.rand(4, 1, 8, 8)
    clean, adversarial = (
        inference_copy(model, images, branch)(images) for branch in ("clean", "adversarial")
    )
    assert (clean - adversarial).abs().max() > 1e-2


def test_the_dual_gate_is_the_kernels_in_double_precision():
    model, images = network(norm="dual").double(), torch.rand(6, 1, 8, 8).double()
    copy = inference_copy(model, images)
    assert not [layer for layer in copy.modules() if isinstance(layer, norms.DualNorm)]
    torch.testing.assert_close(copy(images), model(images), rtol=1e-12, atol=1e-12)


def test_the_copy_leaves_the_model_as_it_was():
    model = network(norm="affine")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    layers = [type(layer) for layer in model.modules()]
    inference_copy(model, torch.rand(2, 1, 8, 8))
    assert [type(layer) for layer in model.modules()] == layers
    assert all(
        torch.equal(value, before[name]) for name, value in model.state_dict().items()
    )


def test_the_python_file_has_plain_keys_and_checks_its_weights(tmp_path):
    model, images = network(norm="mixture"), torch.rand(3, 1, 8, 8)
    files = advnorm.export(
        model, to="torch", out=tmp_path / "net.py", branch="clean", images=images
    )
    text = (tmp_path / "net.py").read_text()
    assert "import advnorm" not in text and "from advnorm" not in text
    assert "branch: clean" in text and files.digests[tmp_path / "net.safetensors"] in text
    tensors = load_file(tmp_path / "net.safetensors")
    assert torch.equal(tensors["norm1.weight"], model.norm1.clean.weight)
    assert {name.split(".")[-1] for name in tensors} == {
        *("mean", "std", "weight", "bias", "running_mean", "running_var"),
        "num_batches_tracked",
    }


def test_the_onnx_file_names_no_file_of_this_machine(tmp_path):
    import onnx

    images = torch.rand(3, 1, 8, 8)
    advnorm.export(network(), to="onnx", out=tmp_path / "net.onnx", images=images)
    content = (tmp_path / "net.onnx").read_bytes()
    assert b".py" not in content
    graph = onnx.load_from_string(content)
    (dimension, *sizes) = graph.graph.input[0].type.tensor_type.shape.dim
    assert dimension.dim_param and [size.dim_value for size in sizes] == [1, 8, 8]
    assert {entry.key for entry in graph.metadata_props} >= {"input", "exported_by"}


class Residual(nn.Module):
    """A user's module: a list of layers, a constant, a weight of its own, in-place ReLU."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Conv2d(2, 2, 3, padding="same") for _ in range(2)])
        self.scale, self.shift = 0.5, nn.Parameter(torch.rand(2, 1, 1))
        self.head = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32, 3))

    def forward(self, x):
        for stage in self.stages:
            x = x + self.scale * torch.tanh(stage(x)) + self.shift
        return self.head(x[:, :, ::2].contiguous().view(x.size(0), 2, -1))


class Branching(nn.Module):
    """Its result depends on values."""

    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class CountsRows(nn.Module):
    """Its result depends on the size of the batch, which a trace cannot see."""

    def forward(self, x):
        return x * (2.0 if len(x) == 2 else 1.0)


@pytest.mark.parametrize("to", FILES)
def test_a_users_own_module_is_exported(to, tmp_path):
    images = torch.rand(5, 2, 8, 4)
    out = tmp_path / FILES[to]
    assert advnorm.export(Residual().eval(), to=to, out=out, images=images).notes


@pytest.mark.parametrize("to", ["torch", "onnx"])
def test_a_layer_that_cannot_be_exported_is_named(to, tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Sequential(Branching()), nn.Linear(4, 3)).eval()
    with pytest.raises(NotImplementedError, match=r"layer '1\.0' \(Branching\)") as error:
        advnorm.export(model, to=to, out=tmp_path / FILES[to], images=torch.rand(2, 4))
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", FILES)
def test_a_wrong_network_is_not_written(to, tmp_path):
    model = nn.Sequential(CountsRows(), nn.Linear(4, 3)).eval()
    with pytest.raises((ValueError, NotImplementedError)):
        advnorm.export(model, to=to, out=tmp_path / FILES[to], images=torch.rand(9, 4))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", FILES)
def test_wrong_weights_are_noticed_and_no_file_is_left(to, tmp_path, monkeypatch):
    module = getattr(advnorm.runs.export, f"{to}_file")

    def damaged(*arguments):
        copy = inference_copy(*arguments)
        copy.classifier.bias += 1e-3
        return copy

    monkeypatch.setattr(module, "inference_copy", damaged)
    with pytest.raises(ValueError, match=r"logits differ by 1\.0e-03"):
        advnorm.export(
            network(), to=to, out=tmp_path / FILES[to], images=torch.rand(9, 1, 8, 8)
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"to": "onxn"}, "did you mean 'onnx'"),
        ({"out": "net.txt"}, r"--out NAME\.py"),
        ({"images": None}, "needs images"),
        ({"branch": "clean"}, "no norm with branches"),
        ({"to": "card"}, "run folder"),
        ({"to": "robustbench"}, "run folder"),
    ],
)
def test_a_mistake_is_one_sentence(settings, words, tmp_path):
    values = {"to": "torch", "out": "net.py", "images": torch.rand(2, 1, 8, 8), **settings}
    with pytest.raises(ValueError, match=words) as error:
        advnorm.export(network(), **{**values, "out": tmp_path / values["out"]})
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_model_with_branches_or_in_training_is_refused(tmp_path):
    images = torch.rand(2, 1, 8, 8)
    with pytest.raises(ValueError, match="name it, branch='adversarial'"):
        advnorm.export(
            network(norm="mixture"), to="torch", out=tmp_path / "a.py", images=images
        )
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        advnorm.export(network().train(), to="torch", out=tmp_path / "a.py", images=images)


def test_nothing_is_overwritten(tmp_path):
    images = torch.rand(2, 1, 8, 8)
    (tmp_path / "net.safetensors").write_text("mine")
    with pytest.raises(FileExistsError, match=r"net\.safetensors exists"):
        advnorm.export(network(), to="torch", out=tmp_path / "net.py", images=images)
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]
    assert (tmp_path / "net.safetensors").read_text() == "mine"


class Wrapped(nn.Module):
    """A network whose output is not the logits alone."""

    def __init__(self, wrap):
        super().__init__()
        self.net, self.wrap = network(), wrap

    def forward(self, images):
        return self.wrap(self.net(images))


@pytest.mark.parametrize("to", FILES)
@pytest.mark.parametrize(
    "wrap",
    [lambda x: {"logits": x, "features": x + 1}, lambda x: SimpleNamespace(logits=x)],
    ids=["dict", "attribute"],
)
def test_the_logits_of_an_output_that_names_them_are_exported(to, wrap, tmp_path):
    model, images = Wrapped(wrap).eval(), torch.rand(8, 1, 8, 8)
    out = tmp_path / FILES[to]
    if to == "torch" and not isinstance(wrap(images), dict):
        with pytest.raises(NotImplementedError, match=r"export to onnx or torchscript"):
            advnorm.export(model, to=to, out=out, images=images)
        return
    exported = advnorm.export(model, to=to, out=out, images=images)
    assert "batch sizes 1, 7 and 8" in str(exported)


@pytest.mark.parametrize("to", FILES)
def test_an_output_without_logits_is_refused_in_one_sentence(to, tmp_path):
    model = Wrapped(lambda x: (x, x)).eval()
    with pytest.raises(ValueError, match=r"^the model returns a tuple, not .*alone$"):
        advnorm.export(
            model, to=to, out=tmp_path / FILES[to], images=torch.rand(8, 1, 8, 8)
        )


class Asking(nn.Module):
    """A network that asks a tensor of its own, or the images, what to do."""

    def __init__(self, on_images):
        super().__init__()
        self.net, self.on_images = network(), on_images
        self.register_buffer("flag", torch.tensor(0))

    def forward(self, images):
        logits = self.net(images)
        if images.mean() > 0.9 if self.on_images else self.flag:
            logits = 1 - logits
        return logits


@pytest.mark.parametrize("on_images", [False, True])
def test_a_branch_on_values_is_one_sentence_and_prints_nothing(on_images, tmp_path, capfd):
    model, images = Asking(on_images).eval(), torch.rand(8, 1, 8, 8)
    with pytest.raises(NotImplementedError) as error:
        advnorm.export(model, to="onnx", out=tmp_path / "net.onnx", images=images)
    assert str(error.value) == (
        "the model (Asking) cannot be exported to onnx: its forward depends on values of "
        "tensors, in a branch or a shape; export to torchscript, whose file keeps the "
        "branches that the test images take"
    )
    written = capfd.readouterr()
    assert not written.out and not written.err


@pytest.mark.parametrize("on_images", [False, True])
def test_a_trace_says_that_it_has_one_branch_of_the_network(on_images, tmp_path):
    model, images = Asking(on_images).eval(), torch.rand(8, 1, 8, 8)
    out = tmp_path / "net.pt"
    exported = advnorm.export(model, to="torchscript", out=out, images=images)
    assert exported.notes[1] == (
        "the model branches on values or shapes of tensors, and the file has the branches "
        "that the test images take: for other images it may compute something else"
    )
    plain = advnorm.export(
        network(), to="torchscript", out=tmp_path / "a.pt", images=images
    )
    assert len(plain.notes) == 1


class Looping(nn.Module):
    """Goes through its images one by one."""

    def forward(self, x):
        return torch.stack([image.flatten() for image in x])


def test_a_loop_over_images_is_refused_without_advice_of_torch(tmp_path):
    model = nn.Sequential(Looping(), nn.Linear(4, 3)).eval()
    with pytest.raises(NotImplementedError, match=r"loops over a tensor \(Pro[^.]*\); exp"):
        advnorm.export(model, to="torch", out=tmp_path / "n.py", images=torch.rand(5, 2, 2))
