"""Run folders that were made to hurt: one sentence, or a page that is as harmless as any."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from advnorm import cli
from advnorm.records import Diagnosis, Panel, Run, Series
from advnorm.report import comparison_text, write, write_paper_pages
from advnorm.report.completion_marks import UNRECORDED
from advnorm.text import printable

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e"
KEY = "pgd-10_linf_0.03137"
RESULT = f"results/{KEY}.json"
DEEP = '{"a":' * 100_000


@pytest.fixture
def run(maker) -> Run:
    trained = maker.run("a")
    maker.train(trained)
    maker.result(trained, "clean", 900)
    maker.result(trained, "pgd-10", 500, eps=8 / 255)
    maker.examples(trained, KEY)
    return trained


def change(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_last_epoch(run: Run, **values) -> None:
    path = run.path / "metrics.jsonl"
    *before, last = path.read_text().splitlines()
    path.write_text("\n".join([*before, json.dumps(json.loads(last) | values), ""]))


def command(monkeypatch, capsys, *arguments):
    """Call the command line in this process; return its exit code and what it wrote."""
    monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    written = capsys.readouterr()
    return end.value.code or 0, written.out, written.err


@pytest.mark.parametrize(
    "file, content",
    [
        (RESULT, DEEP),
        (RESULT, "[" * 100_000),
        ("environment.json", DEEP),
        ("metrics.jsonl", DEEP + "\n"),
        ("monitor.jsonl", DEEP + "\n"),
        ("diagnoses/hessian.json", DEEP),
        (RESULT, '{"attack": ' + "9" * 100_000 + "}"),
        (RESULT, "x" * 2_000_000),
        (RESULT, '{"attack": "\\ud800"}'),
        ("metrics.jsonl", "x" * 2_000_000 + "\n"),
        ("recipe.yaml", "a: " + "[" * 5000),
        ("recipe.yaml", "[a, b]"),
        ("recipe.yaml", "a: &a {b: *a}"),
    ],
    ids=lambda value: value[:24],
)
def test_a_damaging_file_is_named_in_one_sentence(
    run, file, content, tmp_path, monkeypatch, capsys
):
    (run.path / file).parent.mkdir(exist_ok=True)
    (run.path / file).write_text(content)
    page = tmp_path / "r.html"
    code, _, said = command(monkeypatch, capsys, "report", run.path, "--out", page)
    assert code == 2 and said.startswith(f"advnorm: {run.path / file} ")
    assert "Traceback" not in said and len(said) < 1000 and not page.exists()


def test_deep_verdicts_are_named(run):
    (run.path / "verdicts" / "clean.json").write_text(DEEP)
    with pytest.raises(ValueError, match=r"clean\.json is damaged .*recursion limit"):
        run.verdicts("clean")


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
@pytest.mark.parametrize(
    "file",
    [RESULT, "environment.json", "metrics.jsonl", f"examples/{KEY}.safetensors"],
)
def test_what_is_no_regular_file_is_named_and_not_waited_for(run, file, kind, tmp_path):
    path = run.path / file
    path.unlink()
    make = {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
    }
    make[kind]()
    with pytest.raises(ValueError, match="not a regular file") as error:
        write([run], tmp_path / "r.html")
    assert str(path) in str(error.value)


def test_escapes_of_records_reach_neither_the_terminal_nor_the_page(
    run, tmp_path, monkeypatch, capsys
):
    change(run.path / RESULT, attack=f"pgd{ESCAPES}", flags=[ESCAPES], notes=[ESCAPES * 2])
    change(run.path / "environment.json", processor=ESCAPES, device=ESCAPES)
    change_last_epoch(run, alarms=[ESCAPES])
    panel = Panel(
        kind="bars",
        title=ESCAPES,
        x=ESCAPES,
        names=(ESCAPES,),
        series=(Series(name=ESCAPES, x=(0,), y=(1,)),),
    )
    run.write_diagnosis(
        Diagnosis(question="hessian", source=ESCAPES, reading=ESCAPES, panels=(panel,))
    )
    (run.path / "recipe.yaml").write_text(
        'norm: {name: "\\e[2J"}\nmodel: {name: "\\u202e"}'
    )
    page = tmp_path / "r.html"
    assert command(monkeypatch, capsys, "report", run.path, "--out", page)[0] == 0
    text = page.read_text()
    assert not set(ESCAPES[:1] + "\x07\x9b\u202e") & set(text)
    assert "\\x1b]0;title\\x07" in text and "\\u202e" in text
    cli.output.say(comparison_text([run]))
    said = capsys.readouterr().out
    assert not set("\x1b\x07\x9b\u202e") & set(said)
    assert "\\x1b]0;title\\x07" in said


def test_a_name_that_is_not_utf8_has_its_page(maker, tmp_path, monkeypatch, capsys):
    name = os.fsdecode(b"run-\xff")
    trained = maker.run(name)
    maker.train(trained)
    maker.result(trained, "clean", 900)
    page = tmp_path / os.fsdecode(b"r\xfe.html")
    code, said, _ = command(monkeypatch, capsys, "report", trained.path, "--out", page)
    assert code == 0 and "r\\xfe.html" in said
    assert "run-\\xff" in page.read_text()
    code, _, said = command(monkeypatch, capsys, "report", tmp_path / name)
    assert code == 2 and "run-\\xff is not a run folder" in said


@pytest.mark.parametrize(
    "values",
    [
        {"threat": {"norm": "linf", "eps": "NaN"}},
        {"threat": {"norm": "linf", "eps": "Infinity"}},
        {"threat": {"norm": "linf", "eps": 0.1, "bounds": [1, 1]}},
        {"threat": {"norm": "linf", "eps": 0.1, "bounds": [0, "Infinity"]}},
        {"accuracy": {"correct": 1, "n": 10**300}},
        {"accuracy": {"correct": -1, "n": 3}},
        {"training": {"epochs": -1, "planned": 3}},
        {"training": {"epochs": 1, "steps": 10**16, "planned": 3}},
        {"training": {"epochs": 1, "planned": 10**400}},
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(run, values):
    change(run.path / RESULT, **values)
    with pytest.raises(ValueError, match=r"0\.03137\.json is damaged"):
        comparison_text([run])


@pytest.mark.parametrize(
    "values",
    [
        {"loss": 1e308, "lr": 1e308},
        {"loss": float("nan")},
        {"loss": float("inf"), "eps": float("inf")},
        {"epoch": 10**15, "step": 10**15},
    ],
    ids=str,
)
def test_extreme_numbers_of_training_leave_a_page(run, values, tmp_path):
    change_last_epoch(run, **values)
    assert "Training loss" in write([run], tmp_path / "r.html").read_text()


def test_weights_of_no_checkpoint_leave_a_page(run, tmp_path):
    (run.path / "recipe.yaml").write_text("epochs: 12\n")
    change(run.path / RESULT, training=None, weights=f"best-{'9' * 5000}")
    assert UNRECORDED in write([run], tmp_path / "r.html").read_text()


@pytest.mark.parametrize("epochs", ["-1", "1" + "0" * 16, "[1, 2]", "many", ".nan"])
def test_a_plan_of_no_number_of_epochs_leaves_a_page_without_marks(run, epochs, tmp_path):
    (run.path / "recipe.yaml").write_text(f"epochs: {epochs}\n")
    text = write([run], tmp_path / "r.html").read_text()
    assert "pgd-10" in text and "unfinished: " not in text


@pytest.mark.parametrize("epoch", [-1, 10**16, 10**400])
def test_an_epoch_that_cannot_be_is_refused(run, epoch):
    change_last_epoch(run, epoch=epoch)
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged \(epoch"):
        comparison_text([run])


@pytest.mark.parametrize("kind", ["lines", "points", "bars"])
@pytest.mark.parametrize(
    "x, y",
    [
        ((0, 1, 2), (1e308, -1e308, float("inf"))),
        ((1e308, -1e308, float("nan")), (1, 2, 3)),
        ((0, 1, 2), (1e-320, 1e308, float("nan"))),
        ((float("inf"),), (float("inf"),)),
    ],
)
def test_extreme_drawings_leave_a_page(run, kind, x, y, tmp_path):
    panel = Panel(kind=kind, title="$x", log=True, series=(Series(name="$a", x=x, y=y),))
    run.write_diagnosis(
        Diagnosis(question="hessian", source="s", reading="r", panels=(panel,))
    )
    assert "hessian" in write([run], tmp_path / "r.html").read_text()


def test_looks_at_training_that_are_no_numbers_are_left_out(run):
    values = ["Infinity", "NaN", 1e308, 1e308, 2.0, 4.0]
    lines = [
        json.dumps({"step": i, "epoch": 0.5, "numbers": {"gradient_norm": value}})
        for i, value in enumerate(values)
    ]
    (run.path / "monitor.jsonl").write_text("\n".join([*lines, ""]))
    assert "pgd-10" in comparison_text([run])


@pytest.mark.parametrize(
    "replaced",
    [
        {"clean": np.zeros((6, 1, 8, 8), np.int64)},
        {"labels": np.zeros((6, 2), np.int64)},
        {"labels": np.zeros(6, np.float32)},
        {"labels": np.array(3)},
        {"clean": np.array(1.0)},
    ],
    ids=lambda tensors: str({name: value.shape for name, value in tensors.items()}),
)
def test_examples_of_another_kind_are_damaged(run, maker, replaced, tmp_path):
    maker.examples(run, KEY, **replaced)
    with pytest.raises(ValueError, match=r"safetensors is damaged"):
        write([run], tmp_path / "r.html")


@pytest.mark.parametrize(
    "clean, adversarial",
    [(np.inf, -np.inf), (3e38, -3e38), (np.nan, 0.0)],
)
def test_examples_of_any_numbers_leave_a_page(run, maker, clean, adversarial, tmp_path):
    shape = (6, 1, 8, 8)
    maker.examples(
        run,
        KEY,
        clean=np.full(shape, clean, np.float32),
        adversarial=np.full(shape, adversarial, np.float32),
    )
    write([run], tmp_path / "r.html")


def test_examples_without_pixels_are_not_shown(run, maker, tmp_path):
    empty = np.zeros((6, 1, 0, 0), np.float32)
    maker.examples(run, KEY, clean=empty, adversarial=empty)
    write([run], tmp_path / "r.html")


@pytest.mark.parametrize("kind", ["deep", "pipe", "zero"])
def test_a_hostile_record_of_a_reproduction_is_left_out_and_named(tmp_path, kind):
    path = tmp_path / "galloway2019" / "table1-smoke.json"
    path.parent.mkdir()
    make = {
        "deep": lambda: path.write_text(DEEP),
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
    }
    make[kind]()
    pages = write_paper_pages(tmp_path)
    assert len(pages.damaged) == 1 and str(path) in pages.damaged[0]
    assert len(pages.damaged[0]) < 1000 and not pages.written


def test_names_in_verdicts_are_data_of_the_page_and_never_markup(maker, tmp_path):
    evil = f"</script><script>alert(1)</script><!--{ESCAPES}"
    runs = [maker.run(name, norm=evil) for name in ("a", "b")]
    for run in runs:
        by = ["", evil, "fab", ""]
        more = {"labels": [0, 1, 2, 3], "predictions": [0, 9, 9, 3], "by": by}
        maker.tested(run, "pgd-10", eps=8 / 255, data=evil, flags=(evil,), **more)
    text = write(runs, tmp_path / "r.html").read_text()
    assert text.count("<script") == 2 and text.count("</script") == 2
    assert "<!--" not in text and not set("\x1b\x07\x9b\u202e") & set(text)
    block = text.partition('<script type="application/json" id="sample-data">')[2]
    data = json.loads(block.partition("</script>")[0])
    assert [record["attacks"] for record in data["records"]] == [
        [printable(evil), "fab"]
    ] * 2
    assert data["sets"][0]["name"] == printable(evil).partition("[")[0]  # less its subset


@pytest.mark.parametrize("kind", ["deep", "pipe", "long"])
def test_hostile_verdicts_are_named_by_the_report(run, maker, kind, tmp_path):
    maker.tested(run, "fgsm", labels=[1], predictions=[1], eps=0.1)
    path = run.path / "verdicts" / "fgsm_linf_0.1.json"
    path.unlink()
    make = {
        "deep": lambda: path.write_text(DEEP),
        "pipe": lambda: os.mkfifo(path),
        "long": lambda: path.write_text('{"samples": [' + "9" * 10_000 + "]}"),
    }
    make[kind]()
    with pytest.raises(ValueError, match=r"verdicts/fgsm_linf_0\.1\.json"):
        write([run], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
