"""What a long job says reaches the screen as text, whatever is in it."""

import io

import pytest
from rich.console import Console

from advnorm.progress import Bar, Plain

HOSTILE = "file\x1b]0;title\x07\u202e [red]a[/nothing] \udcff"


def test_plain_lines_are_cleaned(capsys):
    Plain().line(HOSTILE)
    printed = capsys.readouterr().err
    assert printed == "file\\x1b]0;title\\x07\\u202e [red]a[/nothing] \\xff\n"


def test_a_bar_takes_no_orders(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console",
        lambda **options: Console(file=screen, force_terminal=True, width=200),
    )
    bar = Bar()
    bar.line(HOSTILE)
    bar.update(1, 2, HOSTILE)
    bar.close()
    printed = screen.getvalue()
    assert "\x1b]0;" not in printed and "\x07" not in printed and "\u202e" not in printed
    assert printed.count("\\x1b]0;title") >= 2 and "[/nothing]" in printed


@pytest.mark.parametrize("text", ["a", "two\nlines"])
def test_plain_text_stays(capsys, text):
    Plain().line(text)
    assert capsys.readouterr().err == f"{text}\n"


class Closed(io.StringIO):
    """A terminal that is closed."""

    def write(self, text):
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_stops_no_job(monkeypatch):
    monkeypatch.setattr("sys.stderr", Closed())
    Plain().line("a")
    monkeypatch.setattr(
        "rich.console.Console",
        lambda **options: Console(file=screen, force_terminal=True, width=200),
    )
    screen = io.StringIO()
    bar = Bar()
    bar._bar.console.file = Closed()
    bar.line("a")
    bar.close()
