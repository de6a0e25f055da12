"""What is shown of text and values from elsewhere."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advnorm.text import LINE, cut, printable, shorten

ROOT = Path(__file__).parents[1] / "advnorm"


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H"),
        ("\x9b31m\x7f\r\b\0", "\\x9b31m\\x7f\\x0d\\x08\\x00"),
        ("exe\u202egnp", "exe\\u202egnp"),
        ("\u2066a\u2069\u200f\u2028", "\\u2066a\\u2069\\u200f\\u2028"),
        ("a\udcffb", "a\\xffb"),
        ("\ud800", "\\ud800"),
        ("two\nlines\tand ± · Ω 字", "two\nlines\tand ± · Ω 字"),
    ],
)
def test_what_would_steer_a_terminal_is_written_out(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_printable_text_is_utf8_without_controls_and_stays_as_it_is(text):
    shown = printable(text)
    shown.encode()
    assert all(c in "\n\t" or c.isprintable() or ord(c) >= 0xA0 for c in shown)
    assert printable(shown) == shown


@given(st.text(max_size=50), st.integers(10, 60))
def test_a_cut_text_keeps_its_ends(text, length):
    short = cut(text, length)
    assert len(short) <= length
    assert short == text if len(text) <= length else text.startswith(short.split("...")[0])


def test_a_value_is_shown_short_however_large():
    value = ["x"]
    for _ in range(100):
        value = [value] * 10  # written out, more than atoms in the world
    endless: list = []
    endless.append(endless)
    numbers = [10**5000, {"a": 1 << 100_000}]
    for large in (
        value,
        endless,
        "x" * 10**6,
        b"x" * 10**6,
        numbers,
        {i: i for i in range(999)},
    ):
        assert len(shorten(large)) <= LINE
    assert shorten({"a": [1, 2.5, None, True, "b"]}) == "{'a': [1, 2.5, None, True, 'b']}"
    assert shorten(10**5000) == "an integer of 16610 bits"


def test_every_line_to_the_terminal_goes_through_one_function():
    """Elsewhere ``typer.echo``, ``print`` or a stream would let escapes through."""
    ways = {("typer", "echo"), ("click", "echo"), ("stdout", "write"), ("stderr", "write")}
    calls_by_file = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                name = getattr(owner, "id", getattr(owner, "attr", ""))
                if (name, node.func.attr) in ways:
                    calls_by_file.setdefault(str(path.relative_to(ROOT)), []).append(node)
    assert {name: len(calls) for name, calls in calls_by_file.items()} == {
        "cli/output.py": 1,
        "progress.py": 1,
    }
    for calls in calls_by_file.values():
        assert "printable" in ast.unparse(calls[0])
