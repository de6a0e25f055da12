"""YAML that was written to hurt: one sentence, at once."""

import subprocess
import sys

import pytest
import yaml

from advnorm.recipe import RecipeError, from_yaml, override, parse
from advnorm.recipes import find
from advnorm.safe_yaml import CHARACTERS, DEPTH, SCALAR, VALUES, load


def bomb(levels: int, width: int = 9) -> str:
    """Return a few hundred bytes that hold ``width ** levels`` values."""
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} [{inner}]")
    return "\n".join(lines) + f"\nepochs: *a{levels - 1}\n"


def refused(tmp_path, *arguments, text=None):
    """Run the real command; return what it says of a file or of its arguments."""
    if text is not None:
        (tmp_path / "r.yaml").write_text(text)
        arguments = ["train", tmp_path / "r.yaml", "--out", tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, "-m", "advnorm", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and len(done.stderr) < 15_000
    assert not (tmp_path / "run").exists()
    return done.stderr


@pytest.mark.parametrize("levels", [8, 12])
def test_an_alias_bomb_is_refused_by_the_command_in_one_sentence(tmp_path, levels):
    assert "aliases (*name) expanded" in refused(tmp_path, text=bomb(levels))


@pytest.mark.parametrize("levels", [3, 4, 5, 9, 40])
def test_an_alias_bomb_of_any_size_is_one_short_error(levels):
    with pytest.raises(RecipeError) as error:
        from_yaml(bomb(levels))
    assert len(str(error.value)) < 2000


def test_an_alias_bomb_in_a_setting_is_refused(tmp_path):
    nested = "[&a [x, x], "
    for level in "bcdefghijkl":
        before = chr(ord(level) - 1)
        nested += f"&{level} [{', '.join([f'*{before}'] * 9)}], "
    setting = f"evaluation.conditions={nested}]"
    message = refused(
        tmp_path, "train", "digits.pgd", "--out", tmp_path / "run", "--set", setting
    )
    assert "expanded" in message and len(message) < 1000


def test_a_bomb_of_merge_keys_is_refused():
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, 12):
        merged = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {{<<: [{merged}]}}")
    with pytest.raises(ValueError, match="expanded"):
        load("\n".join(lines))


def test_aliases_in_moderation_are_fine():
    text = "threat: {eps: &e 8/255}\nvalidation: {eps: *e}\n"
    assert from_yaml(text).validation.eps == 8 / 255
    row = "[" + ", ".join(["1"] * 99) + "]"
    assert load(f"[&a {row}, " + ", ".join(["*a"] * 90) + "]")[90] == [1] * 99


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "[" * 1000 + "]" * 1000,
        "{a: " * 1000,
        "- " * 1000 + "a",
        "? " * 1000,
        "\n".join("  " * i + "a:" for i in range(400)),
    ],
)
def test_deep_yaml_is_refused(text):
    with pytest.raises(RecipeError, match=f"more than {DEPTH} levels"):
        from_yaml(text)


def test_deep_yaml_is_refused_by_the_command(tmp_path):
    assert f"more than {DEPTH} levels" in refused(tmp_path, text="a: " + "[" * 5000)


@pytest.mark.parametrize(
    "text, words",
    [
        ("&a [*a]", "contains itself"),
        ("a: &a {<<: *a}", "contains itself"),
        ("a: " + "x" * (SCALAR + 1), f"a value of {SCALAR + 1} characters"),
        ("# " + "x" * CHARACTERS, f"{CHARACTERS} are allowed"),
        ("[" + "1," * (VALUES + 1) + "]", f"more than {VALUES} values"),
        ("a: 2001-99-99", "cannot be read .ValueError: month"),
        ("a: !!timestamp x", "cannot be read"),
        ("a: !!bool x", "cannot be read"),
        ("a: !!int ''", "cannot be read"),
        ("? !!int x\n: 1", "cannot be read"),
        ("a: 'b\x1b'", "not YAML"),
        ("a: [", "not YAML"),
        ("a: !!python/object/apply:os.system [x]", "not YAML"),
    ],
)
def test_what_cannot_be_read_is_one_error(text, words):
    with pytest.raises(ValueError, match=words) as error:
        load(text)
    assert not isinstance(error.value, yaml.YAMLError) and len(str(error.value)) < 1500
    with pytest.raises(RecipeError, match=words):
        from_yaml(text)


@pytest.mark.parametrize("number", ["0x" + "f" * 2900, "9" * 2900, "1" + ":59" * 900])
@pytest.mark.parametrize("key", ["epochs", "seed", "data.workers", "model.options"])
def test_a_huge_number_is_refused_and_not_written_out(number, key):
    value = f"{{width: {number}}}" if key == "model.options" else number
    with pytest.raises(RecipeError, match=r"too large|less than") as error:
        override(find("digits.pgd"), [f"{key}={value}"])
    assert len(str(error.value)) < 1000


def test_mistakes_are_counted_where_they_are_many_and_keys_cut():
    with pytest.raises(RecipeError) as error:
        parse({f"key{i}" + "y" * 2000: i for i in range(500)})
    message = str(error.value)
    assert message.endswith("and 480 more mistakes") and len(message) < 20_000


@pytest.mark.parametrize("value", ["[1, 2]", "{a: {b: c}}", "text"])
def test_a_given_value_is_still_shown(value):
    with pytest.raises(RecipeError) as error:
        override(find("digits.pgd"), [f"epochs={value}"])
    assert f"(given: {load(value)!r})" in str(error.value)
