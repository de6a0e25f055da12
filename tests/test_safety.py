"""No part of the package runs what a file says."""

import ast
import sys
from pathlib import Path

import pytest
import torch

import advnorm
from advnorm import cli
from advnorm.recipe import ModelSpec, NormSpec, Recipe, to_yaml
from advnorm.records import Environment, Run
from advnorm.runs.export.torch_file import _module_text
from advnorm.training import checkpoints, load_data
from advnorm.training.state import State

ROOT = Path(__file__).parents[1] / "advnorm"
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {"eval", "exec", "extractall", "extract", "unsafe_load", "full_load", "load_all"}


def faults(source: str) -> list[str]:
    """Return what a source file does that reading data must never need."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            faults += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] in MODULES
        ):
            faults.append(node.module)
        elif isinstance(node, ast.Call):
            faults += _call_faults(node)
    return faults


def _call_faults(call: ast.Call) -> list[str]:
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else getattr(call.func, "id", "")
    )
    owner = getattr(getattr(call.func, "value", None), "id", "")
    keywords = {k.arg: getattr(k.value, "value", None) for k in call.keywords}
    method_eval = isinstance(call.func, ast.Attribute) and name == "eval"  # model.eval()
    faults = [name] if name in CALLS and not method_eval else []
    if owner == "yaml" and name.endswith("Loader") and name != "SafeLoader":
        faults.append(f"{owner}.{name}")
    if (owner, name) in {("torch", "load"), ("yaml", "load")}:
        faults.append(f"{owner}.{name}")
    if keywords.get("weights_only", True) is False or keywords.get("allow_pickle", False):
        faults.append(f"{name} with pickles allowed")
    if (owner, name) == ("np", "load") and keywords.get("allow_pickle") is not False:
        faults.append("np.load without allow_pickle=False")
    if name in {"import_module", "__import__"} and not isinstance(
        call.args[0], ast.Constant | ast.JoinedStr
    ):
        faults.append("an import path that is not written in the source")
    if name in {"run_path", "run_module"}:
        faults.append("runs a file")
    if name == "load_user_model":
        faults.append("runs a file that somebody has named")
    return faults


MAY_RUN_FILES = {
    "models/user_files.py": {"runs a file", "runs a file that somebody has named"},
    "cli/user_models.py": {"runs a file that somebody has named"},
    "runs/export/torch_file.py": {"runs a file"},
}
"""The only files that run Python files: models, with a name that the user has typed or passed
in Python, and an export that tries the file which it has just written of a model."""


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_source_reads_data_safely(path):
    allowed = MAY_RUN_FILES.get(path.relative_to(ROOT).as_posix(), set())
    assert set(faults(path.read_text())) == allowed


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "exec('1')",
        "archive.extractall('x')",
        "torch.load(path)",
        "f(path, weights_only=False)",
        "yaml.load(text, Loader)",
        "yaml.unsafe_load(text)",
        "yaml.FullLoader(text)",
        "yaml.Loader(text).get_single_data()",
        "np.load(path, allow_pickle=True)",
        "np.load(path)",
        "import_module(name)",
        "runpy.run_path(path)",
        "load_user_model(recipe.model.name)",
    ],
)
def test_a_planted_fault_is_found(line):
    assert faults(line)


EVIL = """
from pathlib import Path
Path("it_ran").touch()
from torch import nn
net = nn.Linear(64, 10)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "evil.yaml", "--out", "run"],
        ["plan", "evil.yaml"],
        *([name, "strange"] for name in ("evaluate", "certify", "audit", "perturb")),
        ["train", "strange/recipe.yaml", "--out", "strange", "--resume"],
        ["diagnose", "strange", "dead"],
        ["transfer", "strange", "strange2"],
    ],
)
def test_a_recipe_from_elsewhere_runs_no_code(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(EVIL)
    Path("mine.py").write_text("from torch import nn\nnet = nn.Linear(64, 10)\n")
    recipe = Recipe(model=ModelSpec(name="evil.py:net"), norm=NormSpec(name="none"))
    Path("evil.yaml").write_text(to_yaml(recipe))
    state = {
        "state": State().facts(),
        "epochs": 0,
        "data": load_data(recipe, root=None).digest(),
    }
    for name in ("strange", "strange2"):
        run = Run.create(Path(name), to_yaml(recipe), environment())
        weights = {"model/weight": torch.zeros(10, 64), "model/bias": torch.zeros(10)}
        for kind in ("best", "state"):
            checkpoints.save(run.checkpoints, kind, 0, weights, state)
    for more in ([], ["--set", "model.name=mine.py:net"]):
        monkeypatch.setattr(sys, "argv", ["advnorm", *arguments, *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
        error = capsys.readouterr().err
        assert not Path("it_ran").exists() and "Traceback" not in error
        assert more or (end.value.code == 2 and "add --set model.name=evil.py:net" in error)
    with pytest.raises(ValueError, match="is run only where you name it"):
        advnorm.load("strange")
    assert not Path("it_ran").exists()


@pytest.mark.parametrize("text", ['"""\nHOSTILE = 1\n"""', "\\", '\\"""\nHOSTILE = 1'])
def test_the_text_of_a_recipe_is_no_code_in_an_exported_file(text):
    facts = {"recipe": text, "data": text}
    module = ast.parse(_module_text(torch.nn.Linear(2, 2), facts, f"{text}.st", text))
    harmless = ast.parse(_module_text(torch.nn.Linear(2, 2), {}, "x.st", "0"))
    assert [type(node) for node in module.body] == [type(node) for node in harmless.body]
    assert "HOSTILE" not in [getattr(node, "id", "") for node in ast.walk(module)]


def environment():
    return Environment.here(device="cpu", threads=1, ranks=1, launch="")


def test_harmless_lines_pass():
    assert (
        faults(
            "model.eval()\nyaml.safe_load(t)\nyaml.SafeLoader(t)\nnp.load(p, allow_pickle=False)"
        )
        == []
    )
