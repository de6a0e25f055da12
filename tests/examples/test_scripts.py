"""Every script of ``examples/`` runs, and does what its docstring says."""

import ast
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import train

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED = {"train_dual_norm", "finetune_norms", "evaluate_package_model", "read_run"}


@pytest.fixture
def run_script(monkeypatch, capsys):
    """Return a function that runs a script: its variables, and what it prints."""

    def call(name, *arguments):
        script = str(EXAMPLES / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        variables = runpy.run_path(script, run_name="__main__")
        return SimpleNamespace(**variables), capsys.readouterr().out

    return call


def accuracies(text):
    """Return the accuracies of a table that ``evaluate`` prints, in its order."""
    lines = re.findall(r"^\S+ +([\d.]+)% \[.*\] n=\d+", text, re.MULTILINE)
    return [float(number) for number in lines]


def test_every_script_is_tested_and_says_command_cost_and_output():
    scripts = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert set(scripts) == TESTED
    for name, path in scripts.items():
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert f"Command: python examples/{name}.py" in text
        assert "\nCost: " in text and "\nPrints: " in text


def test_a_network_is_trained_with_dual_norm(run_script):
    script, printed = run_script("train_dual_norm")
    clean, robust = accuracies(printed)
    assert clean > 90 and robust > 60  # 95.8% and 75.0% where it was measured
    layers = [m for m in script.model.modules() if isinstance(m, norms.DualNorm)]
    assert len(layers) == 2
    for layer in layers:  # both domains were routed to statistics of their own
        assert layer.clean.num_batches_tracked == layer.adversarial.num_batches_tracked > 0
        assert not torch.equal(layer.clean.running_mean, layer.adversarial.running_mean)


def test_norms_alone_are_tuned_and_gain_robust_accuracy(run_script):
    script, printed = run_script("finetune_norms")
    norm_names = {
        f"{name}.{key}"
        for name, layer in script.model.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
        for key in layer.state_dict()
    }
    for name, value in script.model.state_dict().items():
        assert torch.equal(value, script.trained[name]) is (name not in norm_names), name
    clean, robust, clean_after, robust_after = accuracies(printed)
    assert robust_after > robust + 4  # 52.2% to 61.9% where it was measured
    assert clean > 90 and clean_after > 90
    assert "96 of 10026 parameters are trained" in printed


def test_a_run_folder_is_read_without_advnorm(run_script, tiny, tmp_path, monkeypatch):
    train(tiny, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    evaluate_run(run, tiny, device="cpu")
    for module in [name for name in sys.modules if name.split(".")[0] == "advnorm"]:
        monkeypatch.setitem(sys.modules, module, None)  # importing it would fail
    _, printed = run_script("read_run", run.path)
    assert f"seed: {tiny.seed}\n" in printed and f"norm: {tiny.norm.name}\n" in printed
    for epoch in run.epochs():
        clean, robust = epoch.validation_clean, epoch.validation_robust
        assert (
            f"epoch {epoch.epoch}: loss {epoch.loss:.4f}, train {short(epoch.train)}, "
            f"validation clean {short(clean)}, robust {short(robust)}\n"
        ) in printed
    assert len(run.results()) == 5
    for result in run.results():
        line = f"{result.key}: {short(result.accuracy)}\n"
        verdicts = run.verdicts(result.key)
        pairs = zip(verdicts.samples, verdicts.by, strict=True)
        broken = ", ".join(str(sample) for sample, by in pairs if by)
        attacked = f"  broken samples: {broken or 'none'}\n"
        assert line + attacked * bool(result.threat) in printed


def short(accuracy):
    return f"{accuracy.fraction:.1%} n={accuracy.n}"


def test_what_is_no_run_folder_is_one_sentence(run_script, tmp_path):
    with pytest.raises(SystemExit, match=r"^give a run folder: [^\n]*$"):
        run_script("read_run", tmp_path)


@pytest.mark.parametrize(
    ("name", "package"), [("timm:x", "timm"), ("hf:x", "transformers")]
)
def test_a_missing_package_is_one_sentence(name, package, run_script, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=rf"^{package} cannot .*: pip install {package}$"):
        run_script("evaluate_package_model", name)


@pytest.mark.parametrize("arguments", [(), ("resnet18",), ("timm:",)])
def test_a_model_without_its_package_is_one_sentence(arguments, run_script):
    with pytest.raises(SystemExit, match=r"^name a model: timm:resnet18 or hf:"):
        run_script("evaluate_package_model", *arguments)


@pytest.mark.parametrize("online", [True, False])
def test_a_model_of_timm_is_evaluated(online, run_script, monkeypatch):
    def create_model(name, *, pretrained, num_classes):
        if pretrained and not online:
            raise OSError("no connection")
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))

    package = ModuleType("timm")
    package.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", package)
    _, printed = run_script("evaluate_package_model", "timm:resnet18")
    assert ("pretrained weights" if online else "random weights (OSError") in printed
    clean, _, robust = accuracies(printed)
    assert clean >= robust and clean > 30  # 10% by chance


def test_a_model_of_hugging_face_is_evaluated_where_it_is_installed(
    run_script, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers")
    script, printed = run_script("evaluate_package_model", "hf:advnorm/no-such-model")
    assert "a small ResNet with random weights" in printed
    assert type(script.model.network).__name__ == "ResNetForImageClassification"
    clean, _, robust = accuracies(printed)
    assert clean >= robust and clean > 30
