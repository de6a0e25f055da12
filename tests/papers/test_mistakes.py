"""Mistakes on the command line of ``advnorm reproduce``: one sentence, nothing written."""

import sys

import pytest

from advnorm import cli


@pytest.fixture
def say(tmp_path, monkeypatch, capsys):
    """Return what a command prints as its error, with its exit code."""

    def of(*arguments):
        out = tmp_path / "out"
        monkeypatch.setattr(
            sys, "argv", ["advnorm", "reproduce", *arguments, "--out", str(out)]
        )
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert not out.exists()
        return end.value.code, capsys.readouterr().err

    return of


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["galloway"], "did you mean 'galloway2019'?"),
        (["galloway2019/table99"], "no artefact 'galloway2019/table99': did you mean"),
        (["galloway2019/figure7"], "nothing is measured there"),
        (["galloway2019/table1", "--scale", "ful"], "no scale 'ful': did you mean 'full'?"),
        (["galloway2019/table1", "--seeds", "0"], "--seeds 0: at least one"),
        (["galloway2019/table1", "--on", "0"], "--on takes a number of processes or ray"),
        (["galloway2019/table1", "--on", "two"], "not 'two'"),
        (["galloway2019/table1", "--set", "row=DG"], "no row 'DG': did you mean 'GD'?"),
        (["galloway2019/table1", "--set", "rate=1"], "takes --set row=NAME, not 'rate=1'"),
    ],
)
def test_one_sentence_each(say, arguments, sentence):
    code, output = say(*arguments)
    assert code == 2
    assert sentence in output
    assert output.count("\n") == 1 and output.startswith("advnorm: ")


def test_missing_data_is_named_for_each_run(tmp_path, monkeypatch, capsys):
    argv = ["reproduce", "galloway2019/figure3", "--scale", "full", "--data", "nowhere"]
    monkeypatch.setattr(sys, "argv", ["advnorm", *argv, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "advnorm data get mnist" in capsys.readouterr().out
