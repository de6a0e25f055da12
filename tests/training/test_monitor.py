"""Watching training: right numbers from the step's own pass, and nothing is changed."""

import json

import pytest
import torch
from torch.nn import functional as F

from advnorm import norms
from advnorm.diagnosis.wasserstein import squared_distance
from advnorm.norms.moments import Moments
from advnorm.objectives import OBJECTIVES
from advnorm.recipe import RecipeError, override
from advnorm.records import Run
from advnorm.training import StoppedError, train
from advnorm.training import build_experiment as make
from advnorm.training.monitor import Monitor
from advnorm.training.state import State
from advnorm.training.step import Stepper

ALL = "monitor={every: 2, questions: [gradient_norm, moments, wasserstein, hessian], hessian_steps: 3}"
CASES = {
    "pgd, batch": [],
    "standard, none": ["norm.name=none", "objective.name=standard"],
    "mixed, mixture": ["norm.name=mixture", "objective.name=mixed"],
    "trades, group": ["norm.name=group", "objective.name=trades"],
    "sequential": ["objective={name: mixed, batching: sequential}"],
    "kl, dual": ["norm.name=dual", "objective.name=mixed_kl"],
    "borrowed": ["norm.name=borrowed", "objective.name=mixed"],
    "ibp": ["objective.name=ibp", "threat.eps=0.01"],
    "crown_ibp": ["objective.name=crown_ibp", "threat.eps=0.01", "norm.name=none"],
    "sam": ["gradient.name=sam"],
    "apart": ["gradient.name=apart_sam", "optimizer.clip_norm=0.5"],
    "parts": ["optimizer.accumulate=2", "data.mixup=0.4"],
    "bfloat16": ["precision=bfloat16"],
    "dropout": ["model={name: wide_resnet, options: {depth: 10, widen: 1, dropout: 0.3}}"],
    "recomputed": [
        "model={name: wide_resnet, options: {depth: 10, widen: 1, recompute: true}}"
    ],
}


def weights_of(run: Run) -> bytes:
    return sorted(run.checkpoints.glob("state-*.safetensors"))[-1].read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_with_and_without_the_weights_are_bitwise_equal(tiny, tmp_path, case):
    recipe = override(tiny, ["epochs=1", *CASES[case]])
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    plain = train(recipe, tmp_path / "plain")
    watched = train(override(recipe, [ALL]), tmp_path / "watched")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert weights_of(plain) == weights_of(watched)
    assert [e.model_copy(update={"seconds": 0}) for e in plain.epochs()] == [
        e.model_copy(update={"seconds": 0}) for e in watched.epochs()
    ]
    assert not plain.monitored() and not (plain.path / "monitor.jsonl").exists()
    lines = watched.monitored()
    total = watched.epochs()[-1].step
    assert [line.step for line in lines] == list(range(1, total + 1, 2))
    expected = {"gradient_norm", "gradient_norm/mean", "hessian", "hessian/error"}
    assert all(expected <= line.numbers.keys() for line in lines)


DOMAINS = {
    "pgd, batch": {"adversarial"},
    "standard, none": {"clean"},
    "mixed, mixture": {"clean", "adversarial"},
    "sequential": {"clean", "adversarial"},
    "kl, dual": {"clean", "adversarial"},
    "borrowed": {"clean", "adversarial"},
    "ibp": {"clean"},
    "sam": {"adversarial"},
}


class Nothing:
    """A run folder and progress that remember instead."""

    def __init__(self):
        self.lines, self.said = [], []

    def append_monitored(self, line):
        self.lines.append(line)

    def line(self, text):
        self.said.append(text)


def stepped(tiny, tmp_path, case, *more):
    """Take one watched step; return the experiment as before it, the batch and what was seen."""
    recipe = override(tiny, [*CASES[case], ALL, "precision=float64", *more])
    experiment = make(recipe, root=None, device="cpu")
    before = {k: v.clone() for k, v in experiment.model.state_dict().items()}
    rows = torch.arange(experiment.batch_size)
    batch = next(
        experiment.data.train.batches(
            rows, batch_size=len(rows), device=experiment.device, epoch=0
        )
    )
    seen = Nothing()
    Stepper(experiment, Monitor(experiment, seen, seen))(batch, State())
    return experiment, before, batch, seen


@pytest.mark.parametrize("case", DOMAINS)
def test_domains_are_those_that_the_step_passes(tiny, tmp_path, case):
    experiment, _, _, seen = stepped(tiny, tmp_path, case)
    (line,) = seen.lines
    keys = {key for key in line.numbers if key.startswith("variance/")}
    assert keys == {f"variance/{domain}" for domain in DOMAINS[case]}
    tracked = {key for key in line.numbers if key.startswith("wasserstein/")}
    norm = experiment.recipe.norm.name
    expected = {f"wasserstein/{d}" for d in DOMAINS[case]} if norm != "none" else set()
    assert tracked == expected


@torch.no_grad()
def reference(model, images):
    """Return the moments that a linear, norm, ReLU, linear network has, written out."""
    first, _ = (m for m in model.modules() if isinstance(m, torch.nn.Linear))
    (norm,) = norms.batch_norms(model)
    inside = first(next(iter(model.children()))(images).flatten(1))
    moments = Moments(inside.mean(0), inside.var(0, correction=0), len(inside))
    gap = squared_distance(moments, Moments(norm.running_mean, norm.running_var, 0))
    scaled = (inside - moments.mean) / (moments.var + norm.eps).sqrt()
    deepest = (scaled * norm.weight + norm.bias).relu()
    spread = deepest.var(0, correction=0).mean()
    return {
        "wasserstein": float(gap),
        "mean": float(deepest.mean()),
        "variance": float(spread),
    }


@pytest.mark.parametrize("objective", ["standard", "ibp"])
def test_every_number_of_a_step_against_a_straight_line_reference(
    tiny, tmp_path, objective
):
    changes = [f"objective.name={objective}", "threat.eps=0.01"]
    experiment, before, batch, seen = stepped(tiny, tmp_path, "pgd, batch", *changes)
    experiment.model.load_state_dict(before)
    numbers = seen.lines[0].numbers
    for name, value in reference(experiment.model, batch.images.double()).items():
        assert numbers[f"{name}/clean"] == pytest.approx(value, 1e-9), name


@pytest.mark.parametrize("batching", ["sequential", "concatenated"])
def test_each_domain_is_measured_on_its_own_rows(tiny, tmp_path, batching):
    """At radius 0 both domains are the same images; the order of updates still counts."""
    spec = f"objective={{name: mixed, batching: {batching}}}"
    changes = [spec, "threat.schedule={kind: piecewise, at: [0], factor: 1e-12}"]
    experiment, before, batch, seen = stepped(tiny, tmp_path, "pgd, batch", *changes)
    experiment.model.load_state_dict(before)
    numbers, expected = (
        seen.lines[0].numbers,
        reference(experiment.model, batch.images.double()),
    )
    assert numbers["wasserstein/clean"] == pytest.approx(expected["wasserstein"], 1e-6)
    again = pytest.approx(expected["wasserstein"], 1e-6)
    if batching == "concatenated":
        assert numbers["wasserstein/adversarial"] == again
    else:  # the clean pass has moved the running statistics a tenth of the way
        assert numbers["wasserstein/adversarial"] != again
        assert numbers["wasserstein/adversarial"] < expected["wasserstein"]


def test_gradient_norm_and_hessian_are_those_of_the_training_loss(tiny, tmp_path):
    small = [
        "model.options={depth: 1, width: 2}",
        "monitor.hessian_steps=2000",
        "batch_size=6",
    ]
    experiment, before, batch, seen = stepped(tiny, tmp_path, "standard, none", *small)
    (line,) = seen.lines
    experiment.model.load_state_dict(before)
    images, parameters = batch.images.double(), list(experiment.model.parameters())
    loss = F.cross_entropy(experiment.model(images), batch.labels)
    grads = torch.autograd.grad(loss, parameters, create_graph=True)
    whole = torch.cat([g.reshape(-1) for g in grads])
    assert line.numbers["gradient_norm"] == pytest.approx(
        float(whole.detach().norm()), 1e-9
    )
    mean = sum(float(g.detach().norm()) for g in grads) / len(grads)
    assert line.numbers["gradient_norm/mean"] == pytest.approx(mean, 1e-9)
    rows = [
        torch.cat(
            [
                r.reshape(-1)
                for r in torch.autograd.grad(
                    value, parameters, retain_graph=True, materialize_grads=True
                )
            ]
        )
        for value in whole
    ]
    values = torch.linalg.eigvalsh(torch.stack(rows))
    assert line.numbers["hessian"] == pytest.approx(float(values[-1]), 2e-3)
    dominant = line.numbers["hessian/dominant"]
    assert abs(dominant) == pytest.approx(float(values.abs().max()), 2e-3)


def test_the_adversarial_loss_is_that_of_the_images_that_the_step_found(tiny, tmp_path):
    """With no step of the attack taken twice: the recalled images give the same loss."""
    calls = []
    pgd = OBJECTIVES["pgd"]

    def spy(model, clean, labels, adversary):
        loss = pgd(model, clean, labels, adversary)
        calls.append(float(loss.total.detach()))
        return loss

    recipe = override(tiny, [ALL])
    experiment = make(recipe, root=None, device="cpu")
    rows = torch.arange(experiment.batch_size)
    batch = next(
        experiment.data.train.batches(
            rows, batch_size=len(rows), device=experiment.device, epoch=0
        )
    )
    seen = Nothing()
    stepper = Stepper(experiment, Monitor(experiment, seen, seen))
    stepper.objective = spy
    stepper(batch, State())
    assert len(calls) == 2 and calls[0] == pytest.approx(calls[1], rel=1e-6)


def test_the_hessian_says_beforehand_what_it_costs(tiny, tmp_path):
    _, _, _, seen = stepped(tiny, tmp_path, "pgd, batch")
    (said,) = seen.said
    assert said.startswith("the Hessian takes") and "in all" in said
    assert "4 times" in said or "5 times" in said  # 9 steps in 3 epochs


def test_a_stopped_run_goes_on_with_the_same_lines(tiny, tmp_path, monkeypatch):
    recipe = override(tiny, [ALL, "monitor.every=1", "checkpoint_seconds=0.000001"])
    whole = train(recipe, tmp_path / "whole")
    stops = iter([False] * 4 + [True])

    def check(self):
        if next(stops, False):
            raise StoppedError(15)

    monkeypatch.setattr("advnorm.training.stop.Stop.check", check)
    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "cut")
    monkeypatch.undo()
    cut = Run.open(tmp_path / "cut")
    assert 0 < len(cut.monitored()) < len(whole.monitored())
    with (cut.path / "monitor.jsonl").open(
        "a"
    ) as file:  # beyond the checkpoint, and cut off
        line = json.dumps({"step": 99, "epoch": 9.0, "numbers": {}})
        file.write(f"{line}\n{line[:9]}")
    train(recipe, tmp_path / "cut", resume=True)
    assert cut.monitored() == whole.monitored()


@pytest.mark.parametrize(
    "changes, words",
    [
        (["compile=true", "monitor.questions=[moments]"], "torch.compile hides"),
        (["monitor.questions=[gradient]"], "monitor.questions"),
        (["monitor.every=0"], "monitor.every"),
        (
            ["batch_size=1", "norm.name=none", "monitor.questions=[moments]"],
            "at least 2 samples",
        ),
        (
            [
                "optimizer.accumulate=32",
                "norm.name=none",
                "monitor.questions=[wasserstein]",
            ],
            "each part of a batch: 32 samples",
        ),
    ],
)
def test_what_cannot_be_monitored_is_refused(tiny, tmp_path, changes, words):
    with pytest.raises(RecipeError, match=words):
        train(override(tiny, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
