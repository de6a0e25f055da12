"""``import advnorm``: typed functions, visible to mypy, ``help`` and an IDE."""

import inspect
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import advnorm

ROOT = Path(__file__).parents[1]
FUNCTIONS = [name for name in advnorm.__all__ if inspect.isfunction(getattr(advnorm, name))]
DEFINITIONS = """\
import torch

model: torch.nn.Module
images: torch.Tensor
labels: torch.Tensor
"""
"""What README's examples assume."""


def test_every_name_resolves_and_no_module_is_callable():
    assert list(advnorm.__all__) == sorted(advnorm.__all__)
    for name in advnorm.__all__:
        value = getattr(advnorm, name)
        assert isinstance(value, types.ModuleType) != callable(value), name
    assert set(advnorm.__all__) <= set(dir(advnorm))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(advnorm, "nothing")  # noqa: B009


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_shows_its_parameters_and_an_example(name):
    function = getattr(advnorm, name)
    parameters = inspect.signature(function).parameters.values()
    assert parameters
    assert not [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
    assert not [p.name for p in parameters if p.annotation is p.empty]
    assert ">>> " in (inspect.getdoc(function) or ""), f"{name} has no example"


def test_the_functions_are_those_of_the_design():
    expected = {"audit", "certify", "diagnose", "evaluate", "load", "train"}
    assert expected <= set(FUNCTIONS)


def test_help_names_the_parameters():
    for name in ("evaluate", "audit", "certify"):
        parameters = list(inspect.signature(getattr(advnorm, name)).parameters)
        assert parameters[:4] == ["model", "images", "labels", "threat"], name


def test_the_import_does_not_import_torch():
    code = "import advnorm, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert run(sys.executable, "-c", code).split() == ["False", "False"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel, install it into an environment of its own; return its Python."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # building leaves files in the tree
    source.mkdir()
    for name in ("advnorm", "pyproject.toml", "README.md", "LICENSE"):
        run("cp", "-r", ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--no-input")
    alone = ("--no-deps", "--no-index")
    run(*pip, "wheel", *alone, "--no-build-isolation", "-w", folder / "dist", source)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    packages = next((folder / "env" / "lib").glob("python*")) / "site-packages"
    (wheel,) = (folder / "dist").glob("*.whl")
    run(*pip, "install", *alone, "--target", packages, wheel)
    # torch and the other requirements are those of the present environment
    (packages / "requirements.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return folder / "env" / "bin" / "python"


def test_the_wheel_is_complete(installed, tmp_path):
    code = "import advnorm, advnorm.listing, advnorm.report; print(advnorm.__file__)"
    where = run(installed, "-c", code, cwd=tmp_path).strip()
    package = Path(where).parent
    assert package.is_relative_to(installed.parents[1])
    ignored = {"__pycache__"}
    data = [p for p in (ROOT / "advnorm").rglob("*") if not ignored & {*p.parts}]
    missing = [p for p in data if not (package / p.relative_to(ROOT / "advnorm")).exists()]
    assert not missing


@pytest.mark.slow
@pytest.mark.ci
def test_mypy_accepts_the_examples_of_the_readme(installed, tmp_path):
    examples = "".join(block.text for block in readme_blocks())
    wrong = "\nimport advnorm\n\nadvnorm.evaluate(model, images, nothing=1)\n"
    (tmp_path / "examples.py").write_text(DEFINITIONS + examples)
    (tmp_path / "mistake.py").write_text(DEFINITIONS + wrong)
    strict = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed)
    here = (*strict, "--cache-dir", tmp_path / "cache", "--config-file", "")
    assert "Success" in run(*here, tmp_path / "examples.py", cwd=tmp_path)
    refused = start(*here, tmp_path / "mistake.py", cwd=tmp_path)
    assert 'Unexpected keyword argument "nothing"' in refused.stdout


def readme_blocks():
    sys.path.insert(0, str(ROOT / "tests" / "docs"))
    try:
        from page_blocks import blocks
    finally:
        sys.path.pop(0)
    return blocks(ROOT / "README.md", "python")


def start(*command, cwd=None):
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")
    }
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        env=environment,
    )


def run(*command, cwd=None):
    done = start(*command, cwd=cwd)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def _front_door_mistakes():
    import torch
    from torch import nn

    from advnorm import Linf

    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    images, labels, threat = torch.rand(6, 1, 2, 2), torch.arange(6) % 3, Linf(0.1)
    data = (model, images, labels)
    for name in ("evaluate", "audit", "certify"):
        for wrong in (0.1, Linf, "linf"):
            yield name, (*data, wrong), {}, r"threat is Linf\(8/255\)"
        yield name, data, {}, r"threat.*: pass one, such as threat="
    yield "certify", (*data, [threat]), {}, r"threat is Linf\(8/255\)"
    yield "certify", (*data, threat), {"method": "crwn"}, "did you mean 'crown'"
    yield "certify", (model, images, threat, labels), {}, r"threat is Linf\(8/255\)"
    yield "evaluate", (*data, threat), {"conditions": "pgd-5"}, r"write \['pgd-5'\]"
    yield "diagnose", (*data, 0.1, ["dead"]), {}, r"threat is Linf\(8/255\)"
    yield "diagnose", (*data, threat, "dead"), {}, r"write \['dead'\]"
    yield "diagnose", (*data, threat, []), {}, "name at least one"
    yield "diagnose", (*data, threat, ["ded"]), {}, "did you mean 'dead'"
    yield "diagnose", (model, images, [[1], "a"], threat, ["dead"]), {}, "labels"
    yield "train", ("digits.pgd", "out"), {}, r"recipes\.find\('digits\.pgd'\)"


def test_a_mistake_at_the_front_door_is_one_sentence():
    for name, arguments, settings, words in _front_door_mistakes():
        with pytest.raises(ValueError, match=words) as error:
            getattr(advnorm, name)(*arguments, **settings)
        assert "\n" not in str(error.value)


def test_load_refuses_weights_that_there_are_not(tmp_path):
    recipe = advnorm.recipe.Recipe(epochs=1, data=advnorm.recipe.DataSpec(train=64))
    advnorm.train(recipe, tmp_path / "run", device="cpu")
    with pytest.raises(ValueError, match="weights is 'best' or 'last', not 'bst'"):
        advnorm.load(tmp_path / "run", weights="bst")
