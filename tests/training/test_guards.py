"""NaN and infinity stop a run before they reach the weights."""

import os
import stat

import pytest
import torch
from torch import nn

from advnorm import objectives
from advnorm.objectives import OBJECTIVES, Adversary, Loss
from advnorm.recipe import RecipeError, override
from advnorm.records import Accuracy, Environment, Run, Verdicts
from advnorm.training import NotFiniteError, checkpoints, guards, step, train
from advnorm.training.build import build_experiment


def finite_on_disk(out):
    checkpoint = checkpoints.load(out / "checkpoints", "state", warnings=[])
    floats = [t for t in checkpoint.tensors.values() if t.is_floating_point()]
    return all(torch.isfinite(t).all() for t in floats)


class Planted:
    """Wraps the PGD objective; from the fifth step on, something is not a number."""

    def __init__(self, what):
        self.what, self.calls = what, 0

    def __call__(self, model, clean, labels, adversary):
        self.calls += 1
        if self.calls < 5:
            return objectives.pgd(model, clean, labels, adversary)
        if self.what == "attack":
            clean = clean * float("nan")
        loss = objectives.pgd(model, clean, labels, adversary)
        if self.what == "loss":
            return loss._replace(total=loss.total * float("inf"))
        if self.what == "gradient":  # a finite loss whose derivative is not
            weight = next(p for p in model.parameters() if p.ndim > 1)
            return loss._replace(total=loss.total + (weight.sum() * 0).sqrt())
        return loss


@pytest.mark.parametrize("what", ["loss", "gradient", "attack"])
def test_planted_nan_stops_before_the_step_with_finite_weights_on_disk(
    tiny, tmp_path, monkeypatch, what
):
    planted = Planted(what)
    monkeypatch.setitem(OBJECTIVES._entries, "pgd", planted)
    steps = []
    original = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD, "step", lambda *a, **k: (steps.append(1), original(*a, **k))[1]
    )
    with pytest.raises(NotFiniteError) as error:
        train(tiny, tmp_path / "run")
    words = {"loss": "loss is inf", "gradient": "gradient is nan", "attack": "attack met"}
    assert words[what] in str(error.value)
    assert "epoch 2, step 5" in str(error.value) and "state-00000003" in str(error.value)
    assert len(steps) == 4, "the optimizer moved after the fault"
    assert finite_on_disk(tmp_path / "run")


def test_a_run_that_met_nan_goes_on_from_its_last_good_checkpoint(
    tiny, tmp_path, monkeypatch
):
    planted = Planted("loss")
    monkeypatch.setitem(OBJECTIVES._entries, "pgd", planted)
    with pytest.raises(NotFiniteError):
        train(tiny, tmp_path / "run")
    monkeypatch.undo()
    assert len(train(tiny, tmp_path / "run", resume=True).epochs()) == 3


def test_float16_overflow_lowers_the_scale_and_skips_the_step(tiny, monkeypatch):
    experiment = build_experiment(
        override(tiny, ["precision=float16"]), root=None, device="cpu"
    )
    stepper, state = step.Stepper(experiment), step.State(scale=step.HALF_SCALE)
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    before = [p.clone() for p in experiment.model.parameters()]
    monkeypatch.setattr(step, "gradient_norm", lambda model: torch.tensor(torch.inf))
    stepper(batch, state)
    assert state.scale == step.HALF_SCALE / 2
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, experiment.model.parameters(), strict=True)
    )
    monkeypatch.undo()
    stepper(batch, state)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(before, experiment.model.parameters(), strict=True)
    )


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float64"])
def test_every_precision_trains(tiny, tmp_path, precision):
    run = train(override(tiny, [f"precision={precision}"]), tmp_path / "run")
    losses = [epoch.loss for epoch in run.epochs()]
    assert losses[-1] < losses[0]


def verdicts(predictions, labels):
    robust = tuple(p == y for p, y in zip(predictions, labels, strict=True))
    count = len(labels)
    return Verdicts(
        samples=tuple(range(count)), labels=labels, predictions=predictions, robust=robust
    )


def test_alarms_name_a_collapsed_model_and_catastrophic_overfitting():
    labels = tuple(i % 4 for i in range(40))
    constant, right = verdicts((2,) * 40, labels), verdicts(labels, labels)
    train_ = Accuracy(correct=38, n=40)
    assert "one class (2)" in guards.alarms(train_, constant, right, classes=4)[0]
    wrong = verdicts(tuple((y + 1) % 4 for y in labels), labels)
    assert "catastrophic overfitting" in guards.alarms(train_, right, wrong, classes=4)[0]
    assert guards.alarms(train_, right, right, classes=4) == ()
    assert guards.alarms(None, right, wrong, classes=4) == (), (
        "clean training has no attack"
    )


def test_a_collapsed_run_raises_the_alarm_on_record(tiny, tmp_path, monkeypatch):
    def constant(model, clean, labels, adversary):
        logits = model(clean)
        push = torch.zeros_like(logits)
        push[:, 1] = 100.0
        loss = ((logits - push) ** 2).mean()
        return Loss(loss, {"push": loss.detach()}, (logits.argmax(1) == labels).sum())

    monkeypatch.setitem(OBJECTIVES._entries, "pgd", constant)
    run = train(override(tiny, ["optimizer.lr=0.001"]), tmp_path / "run")
    assert any("one class (1)" in alarm for alarm in run.epochs()[-1].alarms)


def test_every_wrong_name_is_reported_at_once(tiny):
    changes = ["model.name=mpl", "norm.name=bach", "objective.name=pdg", "data.name=digit"]
    changes += ["evaluation.conditions=[pdg-10]", "attack.statistics=train"]
    with pytest.raises(RecipeError) as error:
        build_experiment(override(tiny, changes), root=None, device="cpu")
    for word in ("'mlp'", "'batch'", "'pgd'", "'digits'", "running statistics"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    "change, words",
    [
        ("model.options={wide: 3}", "did you mean 'width'"),
        ("norm.options={esp: 3}", "did you mean 'eps'"),
        ("threat.eps=8", "write 8/255"),
        ("evaluation.threat.eps=[0.1, 3]", "larger than the whole range"),
        ("data.name=spheres", "threat.bounds"),
    ],
)
def test_a_wrong_setting_has_its_remedy(tiny, change, words):
    with pytest.raises(ValueError, match=words):
        build_experiment(
            override(tiny, ["data.train=null", "data.test=null", change]),
            root=None,
            device="cpu",
        )


def test_an_unknown_or_absent_device_is_refused(tiny):
    with pytest.raises(ValueError, match="no device"):
        build_experiment(tiny, root=None, device="gpu0")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA"):
            build_experiment(tiny, root=None, device="cuda")


def in_child(function) -> str:
    """Run ``function`` in a fork and return what it wrote."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writing, function().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as file:
        return file.read()


def test_a_full_disk_stops_with_a_sentence_and_keeps_the_last_checkpoint(tiny, tmp_path):
    """A limit on file size makes writes fail as a full disk does."""
    import resource
    import signal as signals

    train(override(tiny, ["epochs=1", "model.options.width=64"]), tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    path = tmp_path / "run"

    def attempt():
        signals.signal(signals.SIGXFSZ, signals.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            checkpoints.save(
                path / "checkpoints", "state", 99, {"x": torch.zeros(10_000)}, {}
            )
        except OSError as error:
            return str(error)
        return "nothing"

    message = in_child(attempt)
    assert "cannot write" in message and "state-00000099" in message
    assert sorted(p.name for p in (path / "checkpoints").iterdir()) == before
    assert checkpoints.load(path / "checkpoints", "state", warnings=[]) is not None


def test_a_read_only_folder_is_refused_with_a_sentence(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    environment = Environment.here(device="cpu", threads=1)
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    folder.chmod(0o555)

    def attempt():
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)  # root may write anywhere
        try:
            Run.create(folder / "run", "a: 1", environment)
        except OSError as error:
            return str(error)
        return "nothing"

    message = in_child(attempt)
    folder.chmod(0o755)
    assert "cannot write to" in message and "choose another --out" in message


def test_an_adversary_that_would_update_statistics_is_refused():
    with pytest.raises(ValueError, match="must not update running statistics"):
        Adversary(None, "train")


def test_the_attack_in_training_moves_no_statistics_and_takes_no_weight_gradients():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    clean, labels = torch.rand(16, 4), torch.arange(16) % 3
    seen = []

    def search(logits_fn, clean, labels, goal):
        seen.append((model[1].training, model[0].weight.requires_grad))
        logits_fn(clean)
        return clean

    before = model[1].running_mean.clone()
    Adversary(search, "running")(model, clean, labels)
    Adversary(search, "batch")(model, clean, labels)
    assert seen == [(False, False), (True, False)]
    assert torch.equal(before, model[1].running_mean)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    objectives.pgd(model, clean, labels, Adversary(search)).total.backward()
    assert model[1].num_batches_tracked == 1


def test_an_attack_in_float16_that_is_scaled_too_much_is_scaled_less(tiny):
    """A gradient of 100 fits into float16, and 1,024 times of it does not."""
    experiment = build_experiment(
        override(tiny, ["precision=float16"]), root=None, device="cpu"
    )
    with torch.no_grad():
        for layer in experiment.model.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.mul_(30)
    stepper, state = step.Stepper(experiment), step.State(scale=1.0)
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    stepper(batch, state)
    stepper.gradient_scales = (step.HALF_SCALE * 64,)
    with pytest.raises(NotFiniteError, match="attack"):
        stepper(batch, state)


def test_a_scale_that_fell_to_one_grows_again(tiny, monkeypatch):
    monkeypatch.setattr(step, "GROWTH_STEPS", 2)
    experiment = build_experiment(
        override(tiny, ["precision=float16"]), root=None, device="cpu"
    )
    stepper, state = step.Stepper(experiment), step.State(scale=1.0)
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    for _ in range(2):
        stepper(batch, state)
    assert state.scale == 2.0
