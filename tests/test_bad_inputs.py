"""A user's mistake is one sentence, exit code 2 on the command line, and loses nothing."""

import sys
from hashlib import sha256
from types import ModuleType

import numpy as np
import pytest
from torch import nn

import advnorm
from advnorm import cli
from advnorm.data import load
from advnorm.models import load_user_model

MINE = """
from torch import nn

def build(norm, classes):
    return nn.Sequential(nn.Conv2d(1, 4, 3), norm(4), nn.Flatten(), nn.Linear(144, classes))

def big():
    return nn.Sequential(nn.Flatten(), nn.Linear(81, 10))

def few():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def ignores(norm, classes):
    return build(nn.BatchNorm2d, classes)

def leaves():
    raise SystemExit(3)

class Moving(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = bare(), nn.BatchNorm1d(10)
    def forward(self, x):
        mean, var = self.norm.running_mean, self.norm.running_var
        return nn.functional.batch_norm(self.inner(x), mean, var, training=True)

class Raises(nn.Module):
    def __init__(self, calls=0):
        super().__init__()
        self.inner, self.calls = build(nn.BatchNorm2d, 10), calls
    def forward(self, x):
        self.calls -= 1
        if self.calls < 0:
            raise {"kind": KeyError}["kind"]("no such\\nlayer")
        return self.inner(x)

def late():
    return Raises(4)

class NotANumber(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build(nn.BatchNorm2d, 10)
    def forward(self, x):
        return self.inner(x) / 0 * 0

class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten, self.hidden = nn.Flatten(), nn.Linear(64, 32)
        self.norm, self.last = nn.BatchNorm1d(32), nn.Linear(32, 10)
    def forward(self, x):
        features = self.norm(self.hidden(self.flatten(x)))
        return features, self.last(features)

class OwnNorm(nn.Module):
    def forward(self, x):
        return x / x.std() if x.std() > 0 else x

def odd():
    return nn.Sequential(OwnNorm(), bare())

class Scale(nn.Module):
    def forward(self, x):
        return 2 * x

def scaled():
    return nn.Sequential(Scale(), bare())

net = build(nn.BatchNorm2d, 10)
"""
FILES = {
    "mine.py": MINE,
    "raises.py": "raise RuntimeError('no weights\\nin this folder')",
    "leaves.py": "import sys\nsys.exit('bye')",
    "syntax.py": "def (",
}
FEW = ["--set=data.train=64", "--set=data.test=20", "--set=epochs=1"]
FEW += ["--set=validation.samples=10", "--set=validation.steps=1", "--set=attack.steps=1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def call(monkeypatch, capfd):
    """Return a function that runs a command: its exit code, and what it wrote."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        written = capfd.readouterr()
        return end.value.code or 0, written.out, written.err

    return run


@pytest.fixture
def refuses(call, folder):
    """Return a function that checks that a command refuses, and leaves no file."""

    def check(*arguments, words):
        before = digests(folder)
        code, out, err = call(*arguments)
        assert code == 2, (code, out, err)
        assert err.startswith("advnorm: ") and err.count("\n") == 1, err
        assert words in err
        assert digests(folder) == before

    return check


def digests(folder):
    """Return what each file below a folder holds; an empty folder counts too."""
    entries = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {p: p.is_file() and sha256(p.read_bytes()).hexdigest() for p in entries}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine.py:nothing", "mine.py has no 'nothing': name one of build, big, few, bare"),
        ("mine.py", "mine.py names no model: give your model as FILE.py:NAME"),
        ("mine.py:", "mine.py: names no model: give your model as FILE.py:NAME"),
        ("missing.py:build", "missing.py is not a file: give your model as FILE.py:NAME"),
        ("raises.py:x", "raises.py, line 1: RuntimeError: no weights in this folder; corr"),
        ("leaves.py:x", "leaves.py, line 2: SystemExit: bye; correct the file"),
        ("mine.py:leaves", "line 20: SystemExit: 3; correct the file"),
        ("syntax.py:x", "syntax.py, line 1: SyntaxError: invalid syntax; correct the fil"),
    ],
)
def test_a_file_without_the_model(name, words, refuses):
    refuses(
        "train", "digits.pgd", *FEW, "--out=run", f"--set=model.name={name}", words=words
    )
    refuses("evaluate", name, "--set=data.name=digits", "--out=a/run", words=words)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("big", [], "does not map images of shape (1, 8, 8) to logits"),
        ("few", [], "the model has 4 classes (0 to 3): number the labels from 0, or give"),
        ("Moving", [], "moves its statistics in evaluation (buffer 'norm.running_mean')"),
        ("bare", ["norm.name=batch"], "batch, but none: set norm.name=none"),
        ("bare", ["norm.name=dual", "norm.apply=convert"], "has no batch norm to convert"),
        ("ignores", ["norm.name=mixture"], "mixture, but batch: set norm.apply=convert"),
    ],
)
def test_a_model_that_does_not_fit_leaves_its_folder_free(
    name, settings, words, refuses, call
):
    changes = [f"--set={change}" for change in ("data.name=digits", "samples=4", *settings)]
    refuses("evaluate", f"mine.py:{name}", *changes, "--out=a/run", words=words)
    code, out, err = call(
        *("evaluate", "mine.py:net", "--set=data.name=digits", "--set=samples=4"),
        *("--set=conditions=[clean]", "--out=a/run"),
    )
    assert code == 0 and "n=4" in out, err


def test_the_norm_that_a_model_has_may_be_named(call, folder):
    few = ["--set=data.name=digits", "--set=samples=4", "--set=conditions=[clean]"]
    for name, norm in [("net", "batch"), ("bare", "none"), ("build", "mixture")]:
        code, _, err = call("evaluate", f"mine.py:{name}", *few, f"--set=norm.name={norm}")
        assert code == 0, err


def test_a_file_that_changed_or_is_gone_leaves_the_run_as_it_was(call, refuses, folder):
    naming = "--set=model.name=mine.py:build"
    code, _, err = call("train", "digits.pgd", *FEW, naming, "--out=run")
    assert code == 0, err
    resume = ("train", "run/recipe.yaml", "--out=run", "--resume")
    refuses(*resume, words="add --set model.name=mine.py:build")
    (folder / "mine.py").write_text(MINE + "\n# changed\n")
    refuses(*resume, naming, words="mine.py has changed since the run began")
    (folder / "mine.py").unlink()
    refuses(*resume, naming, words="mine.py is not a file")
    refuses("train", "run/recipe.yaml", naming, "--out=new", words="mine.py is not a file")
    (folder / "mine.py").write_text(MINE)
    few = ["--set=samples=4", "--set=conditions=[clean]"]
    code, out, err = call("evaluate", "run", naming, *few)
    assert code == 0 and "n=4" in out, err


DIGITS = ("--set=data.name=digits",)
COMMANDS = {
    "evaluate": (*DIGITS, "--set=samples=4", "--out=a/run"),
    "audit": (*DIGITS, "--set=samples=4", "--out=a/run"),
    "certify": (*DIGITS, "--set=samples=4", "--out=a/run"),
    "diagnose": ("dead", *DIGITS, "--samples=4", "--out=a/run"),
    "transfer": ("mine.py:net", *DIGITS, "--set=samples=4", "--out=a.json"),
    "perturb": (*DIGITS, "--set=evaluation.samples=4", "--out=a/run"),
    "report": (*DIGITS, "--set=samples=4", "--out=a.html"),
    "export": (*DIGITS, "--to=torch", "--out=a.py"),
    "plan": DIGITS,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_whose_forward_fails(command, refuses):
    words = "to logits: KeyError: 'no such\\nlayer'; give the data that it is made for"
    refuses(command, "mine.py:Raises", *COMMANDS[command], words=words)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"plan"}))
def test_a_tuple_whose_first_item_is_not_the_logits(command, refuses):
    """Its features must not pass for logits."""
    words = "the model returns a tuple, not a tensor of logits"
    refuses(command, "mine.py:Tuple", *COMMANDS[command], words=words)


@pytest.mark.parametrize("command", ["evaluate", "diagnose", "transfer"])
def test_a_model_that_fails_later_leaves_no_folder(command, call, folder):
    before = digests(folder)
    code, _, err = call(command, "mine.py:late", *COMMANDS[command])
    last = err.splitlines()[-1]
    assert code == 2 and "Traceback" not in err
    assert (
        last == "advnorm: mine.py, line 37: KeyError: 'no such\\nlayer'; correct the file"
    )
    assert digests(folder) == before


def test_an_error_of_a_module_beside_the_file_names_that_module(call, folder):
    late = "from mine import Raises\nclass Late(Raises):\n  def forward(self, x):\n"
    late += (
        "    self.calls -= 1\n    return self.inner(x) * (self.calls // (self.calls > 0))\n"
    )
    (folder / "parts.py").write_text(late)
    (folder / "whole.py").write_text("from parts import Late\nnet = Late(6)\n")
    code, _, err = call("evaluate", "whole.py:net", *COMMANDS["evaluate"])
    assert code == 2 and "Traceback" not in err
    assert "parts.py, line 5: ZeroDivisionError: " in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "model", "more", "words"),
    [
        ("perturb", "bare", (), "no batch norm, so there are no statistics to perturb"),
        ("perturb", "net", ("--set=radii=[-1]",), "greater than or equal to 0"),
        ("evaluate", "net", ("--set=conditions=[fgms]",), "did you mean 'fgsm'"),
        ("evaluate", "net", ("--set=eps=-1",), "greater than or equal to 0"),
        ("certify", "net", ("--set=samples=0",), "greater than or equal to 1"),
        ("audit", "net", ("--suite=apgd_x",), "no condition 'apgd_x'"),
    ],
)
def test_a_command_that_fails_leaves_no_folder(command, model, more, words, call, folder):
    before = digests(folder)
    code, _, err = call(command, f"mine.py:{model}", *COMMANDS[command], *more)
    assert code == 2 and words in err.splitlines()[-1]
    assert digests(folder) == before


def test_a_command_that_fails_keeps_the_answers_that_are_there(call, folder):
    clean = "--set=conditions=[clean]"
    code, _, err = call("evaluate", "mine.py:net", *COMMANDS["evaluate"], clean)
    assert code == 0, err
    before = digests(folder)
    unknown = "--set=conditions=[unknown]"
    code, _, err = call("evaluate", "mine.py:net", *COMMANDS["evaluate"], unknown)
    assert code == 2 and digests(folder) == before
    both = "--set=conditions=[clean, no]"
    others = ("--set=samples=5", *DIGITS, "--out=b/run")
    (folder / "b").mkdir()
    code, _, err = call("evaluate", "mine.py:net", *others, both)
    assert code == 2 and (folder / "b").is_dir()


def test_logits_that_are_not_finite_are_refused_before_training(refuses):
    naming = "--set=model.name=mine.py:NotANumber"
    words = "advnorm: the model returns logits that are NaN or infinite on valid images"
    refuses("train", "digits.pgd", *FEW, naming, "--out=run", words=words)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("few", "the model returns (1, 4) for 1 images: return at least 10 logits"),
        ("big", "does not map images of shape (1, 8, 8) to logits"),
    ],
)
def test_a_model_that_does_not_fit_has_no_plan(model, words, refuses):
    refuses("plan", f"mine.py:{model}", *DIGITS, "--set=norm.name=none", words=words)


def test_a_study_says_a_reason_once_and_names_no_class(call, folder):
    over = ("--over=norm.name=group,layer,none", "--set=model.name=mine.py:big")
    code, _, err = call("study", "digits.pgd", *over, "--out=s")
    assert code == 2 and err.count("\n") == 1 and "RecipeError" not in err
    assert "0 make sense (group: model 'mine.py:big' does not have the norm" in err
    data = "--set=data.name=npz:none.npz"
    code, _, err = call("study", "digits.pgd", over[0], data, "--out=s")
    assert code == 2 and err.count("none.npz") == 1
    assert "0 make sense (group; layer; none: no file none.npz" in err
    assert not (folder / "s").exists()


def arrays(kind):
    test = load("digits").test
    images, labels = test.images[:100].float().numpy() / 255, test.labels[:100].numpy()
    if kind == "nan":
        images[3, 0, 2, 2] = np.nan
    labels = {"one": labels * 0, "below": labels - 1, "gap": labels * 2}.get(kind, labels)
    return (images[:0], labels[:0]) if kind == "empty" else (images, labels)


BAD_DATA = [
    ("one", "1 class: give at least 2 classes"),
    ("below", "that are not 0 to 9; number the classes 0 to 9 without a gap"),
    ("gap", "that are not 0 to 9; number the classes 0 to 9 without a gap"),
    ("empty", "a split without any image"),
    ("nan", "has images with NaN or infinite values"),
]


@pytest.mark.parametrize(
    ("kind", "words"), [*BAD_DATA, ("unlabelled", "data.npz has images but no labels")]
)
def test_data_in_a_file(kind, words, refuses):
    images, labels = arrays(kind)
    named = {"images": images} | ({} if kind == "unlabelled" else {"labels": labels})
    np.savez("data.npz", **named)
    data = "--set=data.name=npz:data.npz"
    refuses("train", "digits.pgd", "--set=epochs=1", data, "--out=run", words=words)
    refuses("evaluate", "mine.py:net", data, "--out=run", words=words)


@pytest.mark.parametrize(("kind", "words"), BAD_DATA)
def test_data_passed_to_train(kind, words, tiny, tmp_path):
    recipe = tiny.model_copy(update={"data": type(tiny.data)()})
    with pytest.raises(ValueError) as error:
        advnorm.train(recipe, tmp_path / "run", data=arrays(kind))
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("below", "(0 to 9): number the labels from 0"),
        ("empty", "no images"),
        ("nan", "NaN or infinity: remove"),
    ],
)
def test_data_passed_to_evaluate(kind, words):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(ValueError) as error:
        advnorm.evaluate(model, *arrays(kind), advnorm.Linf(0.1))
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("torch", "layer '0' (OwnNorm) cannot be written as source code"),
        ("onnx", "layer '0' (OwnNorm) cannot be exported to onnx"),
    ],
)
def test_a_norm_that_cannot_be_exported(to, words, refuses):
    out = {"torch": "net.py", "onnx": "net.onnx"}[to]
    data = "--set=data.name=digits"
    refuses("export", "mine.py:odd", f"--to={to}", f"--out={out}", data, words=words)


def test_a_layer_of_a_file_is_exported_to_torchscript(call, folder):
    arguments = ("--to=torchscript", "--out=net.pt", "--set=data.name=digits")
    code, _, err = call("export", "mine.py:scaled", *arguments)
    assert code == 0, err
    model = load_user_model("mine.py:scaled")
    assert model.digest and (folder / "net.pt").stat().st_size


@pytest.mark.parametrize(
    ("name", "package"), [("timm:resnet18", "timm"), ("hf:org/name", "transformers")]
)
def test_a_model_of_a_missing_package(name, package, refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    words = f"{name} needs the package {package}"
    refuses("evaluate", name, "--set=data.name=digits", "--out=run", words=words)
    refuses("plan", name, words=words)
    naming = f"--set=model.name={name}"
    refuses("train", "digits.pgd", naming, "--out=run", words=words)


def test_a_package_that_is_broken_or_has_no_such_model(refuses, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("Unknown model\n(resnet81)")

    package = ModuleType("timm")
    package.create_model = fail
    monkeypatch.setitem(sys.modules, "timm", package)
    digits = "--set=data.name=digits"
    words = "timm cannot build timm:resnet81 (RuntimeError: Unknown model (resnet81)): "
    refuses("evaluate", "timm:resnet81", digits, words=words)
    monkeypatch.setattr("advnorm.models.packages.import_module", fail)
    words = "needs the package timm, which cannot be imported (RuntimeError: Unknown"
    refuses("evaluate", "timm:resnet81", digits, words=words)
