"""The pages of the command line: every command, with its options and an example."""

from collections.abc import Iterator
from typing import Any

import typer

from advnorm import cli

HELP = "Show this message and exit."


def commands() -> dict[str, Any]:
    """Return every command by its words: ``train``, ``data get``, in the order of help."""
    group: Any = typer.main.get_command(cli.app)
    return dict(_commands(group, ""))


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def pages() -> dict[str, str]:
    """Return the text of each page, by its name without suffix."""
    every = commands()
    rows = [
        f"| [`advnorm {name}`]({_file(name)}.md) | {_text(command).partition(chr(10))[0]} |"
        for name, command in every.items()
    ]
    names = "\n".join(_file(name) for name in every)
    index = (
        "# Command line\n\nEvery command says the same with `--help`.\n\n"
        "| command | what it does |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\n:::{{toctree}}\n:hidden:\n\n{names}\n:::\n"
    )
    return {"index": index} | {_file(n): page(n, command) for n, command in every.items()}


def page(name: str, command: Any) -> str:
    """Return the page of one command."""
    text, example = _text(command), _example(command)
    arguments = [p for p in command.params if _is_argument(p)]
    options = [p for p in command.params if not _is_argument(p)]
    usage = " ".join(
        ["advnorm", name, *map(_usage, arguments)]
        + [f"{_flags(p)[0]} {_value(p)}" for p in options if p.required]
        + (["[OPTIONS]"] if options else [])
    )
    parts = [f"# advnorm {name}", text, f"```sh\n{usage}\n```"]
    if arguments:
        parts.append(_table("Arguments", "argument", [_row(p) for p in arguments]))
    parts.append(_table("Options", "option", [_row(p) for p in options]))
    parts.append(f"## Example\n\n```sh\n{example}\n```")
    return "\n\n".join(parts) + "\n"


def _file(name: str) -> str:
    return name.replace(" ", "-")


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _text(command: Any) -> str:
    """Return the help without its example."""
    text: str = command.help
    return text.partition("Example:")[0].strip()


def _example(command: Any) -> str:
    text: str = command.help
    return text.partition("Example:")[2].strip()


def _usage(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    many = "..." if parameter.nargs == -1 and not name.endswith("...") else ""
    return f"{name}{many}" if parameter.required else f"[{name}{many}]"


def _flags(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def _value(parameter: Any) -> str:
    """Return what stands behind an option; nothing behind a switch."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    kinds = {"Path": "PATH", "int": "NUMBER", "float": "NUMBER", "str": "TEXT"}
    kind = getattr(parameter.type_descriptor.annotation, "__name__", "str")
    return kinds.get(kind, "TEXT")


def _row(parameter: Any) -> tuple[str, str, str]:
    """Return name, default and meaning of an argument or option."""
    if _is_argument(parameter):
        name = _usage(parameter).strip("[]")
    else:
        name = f"{', '.join(_flags(parameter))} {_value(parameter)}".strip()
    switch = getattr(parameter, "is_flag", False)
    default = "" if parameter.default is None or switch else f"`{parameter.default}`"
    meaning = str(parameter.help).replace("|", "\\|")
    if parameter.min is not None:
        meaning += f" At least {parameter.min}."
    return f"`{name}`", "required" if parameter.required else default or "–", meaning


def _table(title: str, first: str, rows: list[tuple[str, str, str]]) -> str:
    rows = [*rows, ("`--help`", "–", HELP)] if first == "option" else rows
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = f"| {first} | default | meaning |\n|---|---|---|"
    return "\n".join([f"## {title}\n", head, *lines])
