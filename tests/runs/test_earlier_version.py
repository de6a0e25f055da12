"""A run folder of an earlier version is refused in one sentence that says what to do."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from advnorm import cli
from advnorm.recipe import DataSpec, EvaluationSpec, Recipe, from_yaml
from advnorm.records import Epoch, Result, Run, read_reproduction
from advnorm.report import comparison_text
from advnorm.runs import evaluate_run
from advnorm.training import train

REMEDY = (
    "was made by an earlier version of advnorm: make it again in a new folder, or use that "
    "version"
)


@pytest.fixture(scope="module")
def todays(tmp_path_factory):
    """Return a run folder with one result."""
    recipe = Recipe(
        epochs=1,
        data=DataSpec(train=64, test=20),
        evaluation=EvaluationSpec(conditions=("clean",)),
    )
    run = train(recipe, tmp_path_factory.mktemp("runs") / "run", device="cpu")
    evaluate_run(run, recipe, device="cpu")
    return run.path


@pytest.fixture
def folder(todays, tmp_path):
    return Path(shutil.copytree(todays, tmp_path / "run"))


def old_recipe(folder):
    path = folder / "recipe.yaml"
    text = re.sub(r"^init_from:", "start:", path.read_text(), flags=re.MULTILINE)
    path.write_text(text.replace("  lr:", "  rate:").replace("  conditions:", "  attacks:"))
    return folder


def old_monitor(folder):
    (folder / "watch.jsonl").write_text("")
    return folder


def old_metrics(folder):
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"lr":', '"rate":'))
    return path


def old_result(folder):
    path = folder / "results" / "clean.json"
    values = json.loads(path.read_text())
    values["attack"] = values.pop("condition")
    del values["kind"]
    path.write_text(json.dumps(values))
    return path


def command(folder, name):
    return {
        "evaluate": ["evaluate", str(folder), "--device", "cpu"],
        "report": ["report", str(folder), "--out", str(folder / "report.html")],
        "resume": [
            *("train", "digits.standard", "--out", str(folder)),
            *("--resume", "--device", "cpu"),
        ],
    }[name]


def refused(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["advnorm", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code
    return [line for line in capsys.readouterr().err.splitlines() if "advnorm:" in line]


@pytest.mark.parametrize("name", ["evaluate", "report", "resume"])
@pytest.mark.parametrize("make_old", [old_recipe, old_monitor])
def test_an_old_run_folder_is_refused(folder, make_old, name, monkeypatch, capsys):
    old = make_old(folder)
    lines = refused(command(folder, name), monkeypatch, capsys)
    assert lines == [f"advnorm: {old} {REMEDY}"]


@pytest.mark.parametrize("name", ["evaluate", "report"])
@pytest.mark.parametrize("make_old", [old_metrics, old_result])
def test_an_old_record_is_refused(folder, make_old, name, monkeypatch, capsys):
    old = make_old(folder)
    lines = refused(command(folder, name), monkeypatch, capsys)
    assert lines == [f"advnorm: {old} {REMEDY}"]


def test_old_metrics_are_refused_on_resume(folder):
    old = old_metrics(folder)
    recipe = from_yaml((folder / "recipe.yaml").read_text())
    with pytest.raises(ValueError, match=f"^{re.escape(f'{old} {REMEDY}')}$"):
        train(recipe, folder, resume=True, device="cpu")


def test_an_old_reproduction_is_refused(tmp_path):
    path = tmp_path / "table1-smoke.json"
    path.write_text('{"artefact": "a/b", "told": []}')
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path} {REMEDY}')}$"):
        read_reproduction(path)


@pytest.mark.parametrize("line", ['{"rates": 1}', "{}", "[]"])
def test_another_mistake_is_still_called_damage(folder, line):
    (folder / "metrics.jsonl").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
        Run.open(folder).epochs()
    (folder / "results" / "clean.json").write_text(line)
    with pytest.raises(ValueError, match=r"clean\.json is damaged"):
        Run.open(folder).results()


def test_todays_run_folder_is_read(folder):
    assert "clean" in comparison_text([Run.open(folder)])


def test_the_new_names_are_fields():
    for kind in (Epoch, Result):
        assert set(kind.RENAMED.values()) <= set(kind.model_fields)


def test_the_kept_runs_are_of_this_version():
    kept = Path(__file__).parents[2] / "docs" / "results" / "certified-mnist"
    runs = [Run.open(path) for path in kept.iterdir()]
    assert len(runs) == 6 and all(run.epochs() and run.results() for run in runs)
