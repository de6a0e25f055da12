"""No part of the package runs what a file says."""

import ast
from pathlib import Path

import pytest

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
    return faults


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_source_reads_data_safely(path):
    assert faults(path.read_text()) == []


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
    ],
)
def test_a_planted_fault_is_found(line):
    assert faults(line)


def test_harmless_lines_pass():
    assert (
        faults(
            "model.eval()\nyaml.safe_load(t)\nyaml.SafeLoader(t)\nnp.load(p, allow_pickle=False)"
        )
        == []
    )
