"""Every command of the pages is run at a small scale, or parsed in full where it says so."""

import re
import sys

import pytest
import typer
from conftest import TINY
from page_blocks import PAGES, PROSE, ROOT, blocks, commands, inline_code, name_of

from advnorm import cli
from advnorm.recipe import Recipe, override
from advnorm.recipes import find

FEW = {  # settings that come before those of the page, so that a command takes a second
    "train": [f"--set={change}" for change in TINY],
    "evaluate": ["--set=samples=10"],
    "certify": ["--set=samples=10"],
    "audit": ["--set=samples=4"],
    "transfer": ["--set=samples=10"],
    "perturb": ["--set=evaluation.samples=10"],
    "diagnose": ["--samples=20"],
}
OTHERS = {"make", "pip", "ray", "pytest", ".venv/bin/pytest"}
WITH_SHELL = [page for page in PAGES if blocks(page, "sh")]


@pytest.mark.parametrize("page", WITH_SHELL, ids=name_of)
def test_shell_blocks_run(page, folder, monkeypatch, capsys):
    for block in blocks(page, "sh"):
        for words in commands(block.text):
            words = without_environment(words)
            if words[0] == "advnorm" and not block.only_parsed:
                run(words[1:], monkeypatch, capsys)
            else:
                check(words)


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_commands_inside_of_sentences_are_parsed(page):
    lines = re.findall(r"^    (\S.+)$", page.read_text(), re.MULTILINE)
    for line in [*inline_code(page), *lines]:
        if re.match(r"advnorm [a-z]+ \S", line) and not line.endswith("..."):
            (words,) = commands(line)
            parse(words[1:])


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_benchmarks_and_their_options_exist(page):
    lines = [line for line in inline_code(page) if line.startswith("python benchmarks/")]
    for line in lines:
        (words,) = commands(line)
        check(words)


def test_a_mistake_in_a_command_is_seen():
    with pytest.raises(Exception, match="No such option: --nothing"):
        parse(["train", "digits.pgd", "--out", "runs/a", "--nothing"])
    with pytest.raises(ValueError, match="nothing"):
        parse(["train", "digits.pgd", "--out", "runs/a", "--set", "nothing=1"])
    with pytest.raises(ValueError, match="nothing"):
        parse(["evaluate", "runs/a", "--set", "nothing=1"])
    with pytest.raises(AssertionError):
        check(["python", "benchmarks/pgd_step.py", "--nothing"])


def run(arguments, monkeypatch, capsys):
    """Run a command as the terminal does, on few samples."""
    name, *others = arguments
    monkeypatch.setattr(sys, "argv", ["advnorm", name, *FEW.get(name, []), *others])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code, f"advnorm {arguments}: {capsys.readouterr().err}"


def check(words):
    """Check a command without running it."""
    if words[0] == "torchrun":
        words = words[words.index("-m") + 1 :]
    if words[0] == "advnorm":
        parse(words[1:])
    elif words[0] == "python":
        text = source(ROOT / words[1])
        options = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
        assert not [option for option in options if f'"{option}"' not in text]
    else:
        assert words[0] in OTHERS


def source(script):
    """Return the text of a benchmark and of the modules beside it that it imports."""
    text = script.read_text()
    names = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    neighbours = [script.with_name(f"{name}.py") for name in names]
    return "\n".join([text, *(path.read_text() for path in neighbours if path.exists())])


def parse(arguments):
    """Parse a command in full: its options, its recipe, and the settings it changes."""
    command, (name, *others) = typer.main.get_command(cli.app), arguments
    command = command.commands[name]
    while hasattr(command, "commands"):
        command = command.commands[others.pop(0)]
    values = command.make_context(name, others).params
    check_settings(name, values)


def check_settings(name, values):
    changes = values.get("set_") or []
    recipe = values.get("recipe", "RECIPE")
    if recipe != "RECIPE" and not recipe.endswith(".yaml"):
        override(find(recipe), changes)
    elif name in {"evaluate", "certify", "audit", "transfer"}:
        own = [change.removeprefix("evaluation.") for change in changes]
        override(Recipe(), [f"evaluation.{change}" for change in own])


def without_environment(words):
    """Drop the variables that are set in front of a command."""
    while "=" in words[0]:
        words = words[1:]
    return words
