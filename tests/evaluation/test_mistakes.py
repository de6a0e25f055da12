"""Mistakes at the command line of an evaluation: one sentence each, and nothing written."""

import shutil
import sys

import numpy as np
import pytest

from advnorm import cli

SMALL = [
    "--set=model.options={depth: 1, width: 4}",
    "--set=epochs=1",
    "--set=batch_size=8",
    "--set=attack.steps=1",
    "--set=validation.samples=4",
]


def write_npz(path, train=32, test=8):
    """Write a set of two classes that are told apart by their first pixel."""
    labels = {"train": np.arange(train) % 2, "test": np.arange(test) % 2}
    arrays = {f"y_{split}": kinds for split, kinds in labels.items()}
    for split, kinds in labels.items():
        images = np.full((len(kinds), 8, 8), 100, dtype=np.uint8)
        images[:, 0, 0] = 200 * kinds
        arrays[f"x_{split}"] = images
    np.savez(path, **arrays)


def call(monkeypatch, capsys, *arguments):
    """Call the command line; return its exit code and what it said of a mistake."""
    monkeypatch.setattr(sys, "argv", ["advnorm", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0, capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a run by the command; return the folder that has it and its data."""
    folder = tmp_path_factory.mktemp("mistakes")
    write_npz(folder / "own.npz")
    arguments = ["train", "digits.pgd", "--out", str(folder / "run"), *SMALL]
    with pytest.MonkeyPatch.context() as patch:
        data = f"--set=data.name=npz:{folder / 'own.npz'}"
        patch.setattr(sys, "argv", ["advnorm", *arguments, data])
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert not end.value.code
    return folder


def files(run):
    return sorted(path for path in run.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("command", "change", "words"),
    [
        ("evaluate", "samples=0", "evaluation.samples: Input should be greater than or eq"),
        ("evaluate", "samples=-1", "(given: -1)"),
        ("evaluate", "batch_size=0", "evaluation.batch_size"),
        ("evaluate", "conditions=[pdg-10]", "no condition 'pdg': did you mean 'pgd'"),
        ("evaluate", "conditions=[pgd-0]", "STEPS a whole number from 1"),
        ("evaluate", "conditions=[]", "name at least one"),
        (
            "evaluate",
            "eps=[-0.1]",
            "evaluation.threat.eps.0: Input should be greater than or equal",
        ),
        ("evaluate", "eps=[nan]", "evaluation.threat.eps.0"),
        ("evaluate", "eps=[8]", "write 8/255, not 8"),
        ("evaluate", "weights=first", "evaluation.weights"),
        ("evaluate", "data=npz:{folder}/none.npz", "none.npz"),
        ("evaluate", "data=npz:{folder}/empty.npz", "without any image"),
        ("audit", "samples=0", "evaluation.samples"),
        ("certify", "eps=[-1]", "evaluation.threat.eps.0"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_leaves_no_file(
    trained, monkeypatch, capsys, command, change, words
):
    write_npz(trained / "empty.npz", test=0)
    before = files(trained / "run")
    change = change.format(folder=trained)
    code, output = call(monkeypatch, capsys, command, trained / "run", "--set", change)
    assert code == 2 and words in output and "Traceback" not in output, output
    assert sum(line.startswith("advnorm: ") for line in output.splitlines()) == 1
    assert files(trained / "run") == before


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        ("apgd_cee-5", "no condition 'apgd_cee': did you mean 'apgd_ce'"),
        ("", "no condition ''"),
        ("clean", "has no adversary"),
    ],
)
def test_a_suite_that_is_none_is_named(trained, monkeypatch, capsys, suite, words):
    run = trained / "run"
    code, output = call(monkeypatch, capsys, "audit", run, "--suite", suite)
    assert code == 2 and words in output, output
    assert not (run / "audits").exists()


@pytest.mark.parametrize("command", ["evaluate", "audit", "certify"])
def test_a_run_without_weights_says_to_train_it(trained, monkeypatch, capsys, command):
    empty = trained / "bare"
    shutil.copytree(trained / "run", empty, dirs_exist_ok=True)
    shutil.rmtree(empty / "checkpoints", ignore_errors=True)
    code, output = call(monkeypatch, capsys, command, empty)
    assert code == 2 and "bare has no whole 'best' checkpoint: train it" in output, output


def test_a_split_that_became_empty_is_said(trained, monkeypatch, capsys):
    write_npz(trained / "own.npz", test=0)
    code, output = call(monkeypatch, capsys, "evaluate", trained / "run")
    write_npz(trained / "own.npz")
    assert code == 2 and "without any image" in output and "Traceback" not in output, output
