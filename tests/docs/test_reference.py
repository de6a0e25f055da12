"""The tables of the pages name everything that there is."""

import re

import pytest
from page_blocks import ROOT, blocks, inline_code
from pydantic import BaseModel

import advnorm
from advnorm.attacks import ATTACKS
from advnorm.bounds import METHODS
from advnorm.evaluation.checks import CHECKS
from advnorm.gradients import GRADIENTS
from advnorm.norms import NORMS
from advnorm.objectives import OBJECTIVES
from advnorm.recipe import Recipe

HOW_TO = ROOT / "docs" / "how-to"


def named_in(page):
    """Return every word that stands in inline code."""
    return set(re.findall(r"\w+", " ".join(inline_code(HOW_TO / page))))


@pytest.mark.parametrize(
    ("page", "registry"),
    [
        ("audit.md", CHECKS),
        ("evaluation.md", ATTACKS),
        ("norms.md", NORMS),
        ("norms.md", OBJECTIVES),
        ("gradients.md", GRADIENTS),
    ],
)
def test_a_page_names_all_of_a_registry(page, registry):
    assert set(registry) <= named_in(page)


def test_certificates_are_named():
    assert {*METHODS} <= {*inline_code(HOW_TO / "certify.md")}


def test_every_key_of_a_recipe_is_explained():
    known = named_in("training.md") | named_in("evaluation.md")
    assert set(Recipe.model_fields) <= known
    for field in Recipe.model_fields.values():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, BaseModel):
            assert set(part.model_fields) <= known, part.__name__


def test_the_tree_of_the_architecture_page_is_the_floor_plan():
    (tree,) = [
        block.text
        for block in blocks(ROOT / "docs" / "explanation" / "architecture.md", "text")
        if block.text.startswith("advnorm/")
    ]
    package, _, others = tree.partition("tests/")
    folder = ROOT / "advnorm"
    parts = {p.name + "/" for p in folder.iterdir() if (p / "__init__.py").exists()}
    files = {p.name for p in folder.glob("*.py") if not p.name.startswith("__")}
    assert set(re.findall(r"\b\w+(?:/|\.py)", package)) - {"advnorm/"} == parts | files
    assert {"benchmarks/", "docs/", "examples/"} <= set(
        re.findall(r"^\w+/", others, re.MULTILINE)
    )


def test_the_version_is_that_of_the_changelog():
    assert f"## {advnorm.__version__} " in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{advnorm.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_the_readme_counts_the_checks():
    assert (
        f"| checks for misleading robustness | {len(CHECKS)} |"
        in (ROOT / "README.md").read_text()
    )
