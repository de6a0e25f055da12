"""Every Python and YAML block of the pages runs, in the order of its page."""

import re
import sys
from types import ModuleType

import pytest
from conftest import TINY
from page_blocks import PAGES, blocks, name_of

from advnorm import recipes
from advnorm.bounds.operations import FUNCTIONS, LAYERS
from advnorm.listing import KINDS
from advnorm.recipe import from_yaml, override


def with_blocks(language):
    pages = [page for page in PAGES if blocks(page, language)]
    return pytest.mark.parametrize("page", pages, ids=name_of)


@pytest.fixture
def restored_registries(monkeypatch):
    """Undo what the examples of CONTRIBUTING.md register."""
    for registry in KINDS.values():
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    layers, functions = dict(LAYERS), dict(FUNCTIONS)
    yield
    for registry, before in ((LAYERS, layers), (FUNCTIONS, functions)):
        registry.clear()
        registry.update(before)


@pytest.fixture
def small_recipes(page, monkeypatch):
    """Let recipes on digits train in a moment, as those of the commands do.

    The README's takes the 40 images of ``namespace``, which is few enough.
    """
    find = recipes.find
    if page.name == "README.md":
        return

    def find_small(name):
        return override(find(name), TINY) if name.startswith("digits.") else find(name)

    monkeypatch.setattr(recipes, "find", find_small)


@with_blocks("python")
def test_python_blocks_run(
    page, namespace, capsys, monkeypatch, restored_registries, small_recipes
):
    module = ModuleType("page")  # certificates refuse layers of no module
    monkeypatch.setitem(sys.modules, "page", module)
    vars(module).update(namespace)
    for block in blocks(page, "python"):
        code = compile("\n" * block.line + block.text, str(page), "exec")
        capsys.readouterr()
        exec(code, vars(module))
        if block.output:
            assert shape(capsys.readouterr().out) == shape(block.output)


@with_blocks("yaml")
def test_yaml_blocks_are_parts_of_a_recipe(page):
    for block in blocks(page, "yaml"):
        for part in re.split(r"^---$", block.text, flags=re.MULTILINE):
            from_yaml(part)


def shape(output: str) -> list[str]:
    """Return the words of an output without what depends on the model.

    These are its numbers, and which attacks broke samples.
    """
    without = [
        re.sub(r"broken by [^(]*", "broken by ", line)
        for line in output.strip().splitlines()
    ]
    lines = [re.sub(r"\d[\d,]*(\.\d+)?", "0", line) for line in without]
    return [" ".join(line.split()) for line in lines]
