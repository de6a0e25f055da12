"""Every Python and YAML block of the pages runs, in the order of its page."""

import re

import pytest
from page_blocks import PAGES, blocks, name_of

from advnorm.recipe import from_yaml


def with_blocks(language):
    pages = [page for page in PAGES if blocks(page, language)]
    return pytest.mark.parametrize("page", pages, ids=name_of)


@with_blocks("python")
def test_python_blocks_run(page, namespace, capsys):
    for block in blocks(page, "python"):
        code = compile("\n" * block.line + block.text, str(page), "exec")
        capsys.readouterr()
        exec(code, namespace)
        if block.output:
            assert shape(capsys.readouterr().out) == shape(block.output)


@with_blocks("yaml")
def test_yaml_blocks_are_parts_of_a_recipe(page):
    for block in blocks(page, "yaml"):
        for part in re.split(r"^---$", block.text, flags=re.MULTILINE):
            from_yaml(part)


def shape(output: str) -> list[str]:
    """Return the words of an output without its numbers, which depend on the model."""
    lines = [re.sub(r"[\d.]+", "0", line) for line in output.strip().splitlines()]
    return [" ".join(line.split()) for line in lines]
