"""Several artefacts by one command: those that fail are named, the others are reproduced."""

import sys

import pytest
import tiny_recipe

from advnorm import cli
from advnorm.papers import ARTEFACTS, Artefact, Job, record_path
from advnorm.papers.numbers import CLEAN
from advnorm.recipe import EvaluationSpec, override
from advnorm.records import read_reproduction

TINY = tiny_recipe.TINY.replace(evaluation=EvaluationSpec(conditions=("clean",)))
MNIST = override(TINY, ["data={name: mnist, train: 60, test: 20}"])
NAMES = ("one/table1", "one/table2", "two/table1")


def entered(monkeypatch, name, *jobs, **more):
    entry = Artefact(name, "Tiny", lambda _: list(jobs), {}, **more)
    monkeypatch.setitem(ARTEFACTS._entries, name, entry)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Enter three artefacts of one run; return a command's exit code and what it says."""
    for name in NAMES:
        entered(monkeypatch, name, Job("a", TINY, {"clean": CLEAN}))

    def run(*words):
        argv = ["advnorm", *words]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as end:
            cli.main()
        return (end.value.code or 0, *capsys.readouterr())

    return run


def reproduced(folder):
    """Return the artefacts that have a whole record with numbers."""
    paths = {name: record_path(folder, name, "smoke") for name in NAMES}
    return [
        n for n, path in paths.items() if path.exists() and read_reproduction(path).rows
    ]


def test_a_damaged_record_stops_neither_artefacts_nor_pages(command, tmp_path):
    out = tmp_path / "out"
    code, output, _ = command("reproduce", "one/table1", "--out", str(out))
    assert code == 0 and "Each number is an accuracy on n=20 samples." in output
    path = record_path(out, "one/table1", "smoke")
    whole, before = path.read_bytes(), read_reproduction(path)
    path.write_bytes(whole[:300])
    code, output, error = command("reproduce", *NAMES, "--out", str(out))
    assert code == 1
    assert error.count(str(path)) == 1, "it is named once"
    assert f"advnorm: one/table1 was not reproduced: {path} is not the record" in error
    assert "remove it and reproduce again" in error
    assert "one/table2: Tiny" in output and "two/table1: Tiny" in output
    assert {p.name for p in out.glob("*.html")} == {"one.html", "two.html"}
    assert path.read_bytes() == whole[:300], "what may be mended by hand is not lost"
    path.unlink()
    code, output, error = command("reproduce", "one/table1", "--out", str(out))
    assert code == 0 and "advnorm:" not in error
    assert read_reproduction(path).rows == before.rows


def test_a_damaged_record_of_another_artefact_is_named(command, tmp_path):
    out = tmp_path / "out"
    path = record_path(out, "one/table1", "smoke")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, output, error = command("reproduce", "one/table2", "--out", str(out))
    assert code == 1 and f"wrote {out / 'one.html'}" in output
    assert f"advnorm: {path} is not the record of a reproduction" in error


@pytest.mark.parametrize("error", [ValueError("two"), ZeroDivisionError("two")], ids=str)
def test_an_artefact_that_raises_stops_no_other(command, tmp_path, monkeypatch, error):
    def digest(root):
        raise error

    out = tmp_path / "out"
    real = sys.modules["advnorm.papers.ledger"]._digests
    calls = iter([real, digest, real])
    monkeypatch.setattr("advnorm.papers.ledger._digests", lambda root: next(calls)(root))
    code, _, output = command("reproduce", *NAMES, "--out", str(out))
    assert code == 1 and reproduced(out) == ["one/table1", "two/table1"]
    kind = "" if isinstance(error, ValueError) else "ZeroDivisionError: "
    assert f"advnorm: one/table2 was not reproduced: {kind}two\n" in output


def test_missing_data_of_one_artefact_are_named_at_the_end(command, tmp_path, monkeypatch):
    jobs = [Job(row, MNIST, {"clean": CLEAN}) for row in "ab"]
    entered(monkeypatch, "one/table1", *jobs)
    out, data = tmp_path / "out", tmp_path / "no where"
    code, output, error = command(
        "reproduce", *NAMES, "--data", str(data), "--out", str(out)
    )
    assert code == 1 and reproduced(out) == ["one/table2", "two/table1"]
    get = f"advnorm data get mnist --data '{data}'"
    assert output.count(f"or run: {get}") == 2
    (last,) = [line for line in error.splitlines() if line.startswith("advnorm:")]
    assert last.startswith("advnorm: one/table1: 2 failed, the first with FileNotFound")
    assert get in last


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["one/table9"], "no artefact 'one/table9'"),
        (["--set", "row=a"], "two/table1: no row 'a'"),
        (["--seeds", "0"], "--seeds 0: at least one"),
        (["--on", "ray"], "--on ray needs Ray: pip install 'advnorm[ray]'"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_before_anything_runs(
    command, tmp_path, monkeypatch, words, sentence
):
    entered(monkeypatch, "two/table1", Job("b", TINY, {"clean": CLEAN}))
    monkeypatch.setitem(sys.modules, "ray", None)  # it cannot be imported
    out = tmp_path / "out"
    code, output, error = command("reproduce", *NAMES, *words, "--out", str(out))
    assert code == 2 and sentence in error and not output
    assert not out.exists()


def test_a_file_in_the_place_of_the_folder_is_refused(command, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    code, _, error = command("reproduce", *NAMES, "--out", str(file))
    assert code == 2 and error == f"advnorm: --out {file} is a file: choose another --out\n"
