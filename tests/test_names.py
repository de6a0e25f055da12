"""Names are those of the field, and a public class name has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "advnorm"
FILES = [
    path
    for part in ("advnorm", "benchmarks", "tests")
    for path in (ROOT / part).rglob("*.py")
]

NEVER = {"told", "judged", "judging", "untouched", "lent", "dealt", "company", "anybody"}
"""Words of our own, which say nothing to a reader of the field."""

ALONE = {
    *("subject", "subjects", "thin", "shifted", "least", "reach", "windows", "climb"),
    *("given", "held", "rest", "small", "live", "freed", "cell", "cells", "assumed"),
    *("several", "work", "found", "made", "making", "showing", "shown", "asked", "unseen"),
    *("kept", "known", "own", "one", "many", "things", "stuff", "test", "details"),
}
"""Words that need another one beside them: ``freed_memory`` says what is freed."""


def classes(path):
    tree = ast.parse(path.read_text())
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def words(name):
    """Split the name of a file or class into its words."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def is_private(name):
    split = words(name)
    return bool(split & NEVER or (split and split <= ALONE))


def test_a_public_class_name_is_defined_once():
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in classes(path):
            if not name.startswith("_"):
                places[name].append(str(path.relative_to(PACKAGE)))
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert not twice


def test_files_and_classes_have_the_words_of_the_field():
    private = {}
    for path in FILES:
        names = [name for name in [path.stem, *classes(path)] if is_private(name)]
        if names:
            private[str(path.relative_to(ROOT))] = names
    assert not private


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("Told", True),
        ("told_numbers", True),
        ("test_cells", True),
        ("_Kept", True),
        ("LedgerEntry", False),
        ("freed_memory", False),
        ("PGDStep", False),
        ("one_domain", False),
    ],
)
def test_private_words_are_seen(name, private):
    assert is_private(name) == private
