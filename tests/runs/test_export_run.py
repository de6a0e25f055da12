"""Exports of a run repeat its verdicts, say where they are from, and hold its numbers."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

import advnorm
from advnorm import cli
from advnorm.recipe import override, to_yaml
from advnorm.records import Result, Run, ThreatRecord
from advnorm.records.base import Accuracy
from advnorm.runs import audit_run, evaluate_run
from advnorm.runs.export import ExportCheckError, checks
from advnorm.runs.export.checks import check_export
from advnorm.runs.export.source import ExportSource
from advnorm.training import train

FILES = {"torch": "net.py", "torchscript": "net.pt", "onnx": "net.onnx"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a run with a mixture norm, tested on its adversarial branch and audited."""
    recipe = override(
        advnorm.recipe.Recipe(),
        [
            *("data.train=96", "data.test=40", "epochs=1", "batch_size=32"),
            *("model.options={depth: 1, width: 8}", "norm.name=mixture"),
            *("objective.name=mixed", "attack.steps=2", "threat.eps=8/255"),
            "validation={samples: 30, steps: 1}",
            "evaluation={conditions: [clean, pgd-3], threat: {eps: [8/255, 0.2]}}",
        ],
    )
    run = train(recipe, tmp_path_factory.mktemp("runs") / "mix", device="cpu")
    evaluate_run(run, recipe, device="cpu")
    audit_run(run, override(recipe, ["evaluation.samples=4"]), suite=("pgd-3",))
    return run


@pytest.fixture
def run(trained, tmp_path):
    """Return a copy, which a test may change."""
    shutil.copytree(trained.path, tmp_path / "mix")
    return Run.open(tmp_path / "mix")


def change_json(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("to", FILES)
def test_stored_predictions_are_repeated(trained, to, tmp_path):
    files = advnorm.export(trained.path, to=to, out=tmp_path / FILES[to])
    examples = sum(
        2 * len(load_file(trained.examples(result.key))["labels"])
        for result in trained.results()
        if trained.examples(result.key).exists()
    )
    assert examples
    assert f"{40 + examples} stored predictions repeated" in files.notes[0]


@pytest.mark.parametrize("to", FILES)
def test_a_verdict_that_is_not_repeated_stops_the_export(run, to, tmp_path):
    def flip(record):
        record["predictions"][5] = (record["predictions"][5] + 1) % 10

    change_json(run.path / "verdicts" / "clean@adversarial.json", flip)
    with pytest.raises(ExportCheckError, match="stored predictions of clean@adversarial"):
        advnorm.export(run, to=to, out=tmp_path / FILES[to])
    assert not (tmp_path / FILES[to]).exists()
    assert not (tmp_path / "net.safetensors").exists()


def test_an_example_that_is_not_repeated_stops_the_export(run, tmp_path):
    from safetensors.torch import save_file

    path = next((run.path / "examples").iterdir())
    kept = load_file(path)
    kept["adversarial_predictions"] = (kept["adversarial_predictions"] + 1) % 10
    save_file(kept, path)
    with pytest.raises(ExportCheckError, match="stored predictions of pgd-3"):
        advnorm.export(run, to="torch", out=tmp_path / "net.py")


def test_a_tie_is_counted_and_no_fault(monkeypatch):
    model, images = torch.nn.Linear(2, 3).eval(), torch.rand(4, 2)
    model.weight.data[1], model.bias.data[1] = model.weight.data[0], model.bias.data[0]
    model.bias.data[2] = -9.0
    source = ExportSource(model, images, None, "net")
    for stored, ties in ((0, 0), (1, 4)):
        kept = [("clean", images, torch.full((4,), stored))]
        monkeypatch.setattr(checks, "_stored_predictions", lambda _, kept=kept: kept)
        assert checks.check_export(source, source.logits).ties == ties
    kept = [("clean", images, torch.full((4,), 2))]
    monkeypatch.setattr(checks, "_stored_predictions", lambda _: kept)
    with pytest.raises(ExportCheckError, match="4 of 4 differ"):
        checks.check_export(source, source.logits)


def test_the_tolerance_of_logits():
    model = torch.nn.Linear(2, 3).eval()
    images = torch.rand(3, 2)
    source = ExportSource(model, images, None, "net")
    assert check_export(source, lambda x: model(x).detach() + 9e-5).difference > 8e-5
    with pytest.raises(ExportCheckError, match="logits differ"):
        check_export(source, lambda x: model(x).detach() + 1.1e-4)
    with pytest.raises(ExportCheckError, match="logits differ"):
        check_export(source, lambda x: model(x).detach() * torch.nan)


def test_results_of_another_branch_are_not_repeated(trained, tmp_path):
    files = advnorm.export(trained, to="torch", out=tmp_path / "a.py", branch="clean")
    assert "stored" not in files.notes[0]
    assert "branch: clean" in (tmp_path / "a.py").read_text()


def test_an_unfinished_run_is_marked_everywhere(run, tmp_path):
    recipe = override(advnorm.recipe.read(run.path / "recipe.yaml"), ["epochs=9"])
    (run.path / "recipe.yaml").write_text(to_yaml(recipe))
    outs = {**FILES, "card": "card.md", "robustbench": "entry.json"}
    for to, name in outs.items():
        advnorm.export(run, to=to, out=tmp_path / name)
        content = (tmp_path / name).read_bytes()
        flat = re.sub(rb"\s+", b" ", content)
        assert b"unfinished: 1 of 9 epochs" in flat, to


def test_the_last_weights_are_exported_on_request(trained, tmp_path):
    advnorm.export(trained, to="torch", out=tmp_path / "a.py", weights="last")
    assert "weights: state-" in (tmp_path / "a.py").read_text()


def auto_attack(run, eps, correct, n=1000):
    """Return a result as AutoAttack would leave it."""
    clean = run.result("clean@adversarial")
    return Result(
        condition="standard",
        kind="suite",
        threat=ThreatRecord(norm="linf", eps=eps),
        accuracy=Accuracy(correct=correct, n=n),
        data=clean.data,
        weights=clean.weights,
        training=clean.training,
        branch="adversarial",
        seed=0,
        seconds=1.0,
    )


def test_robustbench_has_what_was_measured_and_nothing_else(run, tmp_path):
    files = advnorm.export(run, to="robustbench", out=tmp_path / "a.json")
    entry = json.loads((tmp_path / "a.json").read_text())
    clean = run.result("clean@adversarial").accuracy
    assert entry["clean_acc"] == f"{100 * clean.correct / clean.n:.2f}"
    assert (entry["eps"], entry["dataset"], entry["architecture"]) == (
        "8/255",
        "digits",
        "mlp",
    )
    null = {"link", "name", "authors", "venue", "reported", "autoattack_acc", "unreliable"}
    assert {field for field, value in entry.items() if value is None} == null
    assert all(field in files.notes[0] for field in null)
    assert "40 test images" in entry["footnote"]


def test_robustbench_takes_auto_attack_at_the_radius_of_the_recipe(run, tmp_path):
    run.write_result(auto_attack(run, 0.2, 100))
    run.write_result(auto_attack(run, 8 / 255, 523))
    advnorm.export(run, to="robustbench", out=tmp_path / "a.json")
    entry = json.loads((tmp_path / "a.json").read_text())
    assert entry["autoattack_acc"] == "52.30"
    flagged = any(audit.flagged for audit in run.audits())
    assert entry["unreliable"] is flagged
    fields = set(entry)
    assert fields == {
        *("link", "name", "authors", "additional_data", "number_forward_passes"),
        *("dataset", "venue", "architecture", "eps", "clean_acc", "reported"),
        *("autoattack_acc", "unreliable", "footnote"),
    }


def test_the_card_has_every_number_with_its_interval(trained, tmp_path):
    advnorm.export(trained, to="card", out=tmp_path / "card.md")
    _, head, body = (tmp_path / "card.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(head)
    (index,) = metadata["model-index"]
    metrics = index["results"][0]["metrics"]
    assert len(metrics) == len(trained.results()) == 3
    assert metadata["datasets"] == ["digits"]
    for result in trained.results():
        assert str(result.accuracy) in body
        assert round(result.accuracy.fraction, 4) in [m["value"] for m in metrics]
    for audit in trained.audits():
        assert all(flag.split("|")[0] in body for flag in audit.flags)
    assert "AutoAttack (condition `standard`) was not run." in body
    assert "No audit was run" not in body


def test_results_of_other_weights_are_left_out(run, tmp_path):
    for path in (run.path / "results").glob("pgd*.json"):
        change_json(path, lambda record: record.update(weights="best-1 sha256:0"))
    files = advnorm.export(run, to="card", out=tmp_path / "card.md")
    assert "2 results of other weights are left out" in files.notes[0]
    assert "| pgd-3" not in (tmp_path / "card.md").read_text()


def test_the_command_writes_and_refuses(trained, tmp_path, monkeypatch, capsys):
    def command(*words):
        monkeypatch.setattr(sys, "argv", ["advnorm", "export", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    out = tmp_path / "net.py"
    named = (trained.path, "--to", "torch", "--out", out, "--set", "branch=clean")
    code, text, _ = command(*named)
    assert code == 0 and "net.safetensors  sha256:" in text
    code, _, error = command(*named)
    assert code == 2 and "exists" in error and error.count("\n") == 1
    code, _, error = command(trained.path, "--to", "tourch", "--out", tmp_path / "b.py")
    assert code == 2 and "did you mean 'torch'" in error
    code, _, error = command(tmp_path, "--to", "card", "--out", tmp_path / "c.md")
    assert code == 2 and "is not a run folder" in error


def test_a_missing_package_names_the_extra(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"advnorm\[onnx\]"):
        advnorm.export(trained, to="onnx", out=tmp_path / "a.onnx")


def test_documents_need_neither_weights_nor_torch_files(trained, tmp_path):
    """A card is written from the records: the checkpoint's bytes are not read."""
    shutil.copytree(trained.path, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("best-*.safetensors"):
        path.write_bytes(b"")
    advnorm.export(tmp_path / "run", to="card", out=tmp_path / "card.md")
    assert "| clean |" in (tmp_path / "card.md").read_text()


def test_the_help_does_not_import_torch():
    code = (
        "import sys; sys.argv = ['advnorm', 'export', '--help']\n"
        "from advnorm import cli\n"
        "try:\n    cli.main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.split()[-1] == "False"
