"""Details of the loop that decide a run: what is keyed by what, and when things happen."""

import os
import signal
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from advnorm.attacks import pgd
from advnorm.progress import Quiet
from advnorm.recipe import RecipeError, override
from advnorm.records import Accuracy, Run, Verdicts
from advnorm.runs import condition as judged_cells
from advnorm.runs import evaluate_run
from advnorm.training import NotFiniteError, checkpoints, guards, loop, step, train
from advnorm.training.build import build_experiment
from advnorm.training.components import build_optimizer
from advnorm.training.saver import Saver
from advnorm.training.state import State
from advnorm.training.step import Stepper
from advnorm.training.stop import Stop
from advnorm.training.validate import Validated, validate


def first_batch(experiment):
    return next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )


def newest(run, kind="state"):
    return checkpoints.load(run.checkpoints, kind, warnings=[])


# What a step is keyed by.


def spied_draws(tiny, monkeypatch, state, changes=()):
    """Return the images that the objective sees and the attack's start, in one step."""
    experiment = build_experiment(
        override(tiny, ["data.augment=crop", *changes]), root=None, device="cpu"
    )
    stepper, seen = Stepper(experiment), {}

    def spying(*args, **settings):
        seen["start"] = pgd(*args, **{**settings, "steps": 0})
        return pgd(*args, **settings)

    monkeypatch.setattr(step, "pgd", spying)
    objective = stepper.objective

    def spy(model, clean, labels, adversary):
        seen["images"], seen["training"] = clean, model.training
        return objective(model, clean, labels, adversary)

    stepper.objective = spy
    stepper(first_batch(experiment), state)
    return seen


def test_augmentation_and_start_change_with_the_epoch_and_only_with_it(tiny, monkeypatch):
    one = spied_draws(tiny, monkeypatch, State())
    same = spied_draws(tiny, monkeypatch, State(step=7))
    other = spied_draws(tiny, monkeypatch, State(epoch=1))
    for what in ("images", "start"):
        assert torch.equal(one[what], same[what]) and not torch.equal(
            one[what], other[what]
        )
    assert one["training"], "dropout is on while a model is trained"


class Noisy(nn.Module):
    """A layer that draws from the global random state, as dropout does."""

    seen: ClassVar[list[float]] = []

    def forward(self, x):
        self.seen.append(torch.rand(()).item())
        return x


def test_dropout_is_seeded_by_the_step(tiny):
    def draw(state, seed=0):
        experiment = build_experiment(
            override(tiny, [f"seed={seed}"]), root=None, device="cpu"
        )
        experiment.model.append(Noisy())
        Noisy.seen = []
        torch.manual_seed(123)
        with torch.random.fork_rng():
            Stepper(experiment)(first_batch(experiment), state)
        return Noisy.seen[0]

    assert draw(State(step=3)) == draw(State(step=3))
    assert len({draw(State(step=3)), draw(State(step=4)), draw(State(step=3), seed=1)}) == 3


class SignalAt(Quiet):
    def __init__(self, at):
        self.at = at

    def update(self, done, total, text):
        if done == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_network_with_dropout_and_channels_last_resumes_bitwise(
    tiny, tmp_path, fingerprint
):
    changes = [
        "data.size=16",
        "data.train=24",
        "batch_size=8",
        "model={name: wide_resnet, options: {depth: 10, widen: 1, dropout: 0.3}}",
        "attack.steps=1",
        "epochs=2",
        "channels_last=true",
        "validation={samples: 10, steps: 1}",
    ]
    recipe = override(tiny, changes)
    whole = train(recipe, tmp_path / "whole")
    from advnorm.training import StoppedError

    with pytest.raises(StoppedError):
        train(recipe, tmp_path / "run", progress=SignalAt(2))
    assert fingerprint(train(recipe, tmp_path / "run", resume=True)) == fingerprint(whole)


def test_the_loss_scale_grows_after_many_steady_steps(tiny, monkeypatch):
    monkeypatch.setattr(step, "GROWTH_STEPS", 3)
    experiment = build_experiment(
        override(tiny, ["precision=float16"]), root=None, device="cpu"
    )
    stepper, state = Stepper(experiment), State(scale=64.0)
    scales = []
    for _ in range(4):
        stepper(first_batch(experiment), state)
        scales.append(state.scale)
    assert scales == [64.0, 64.0, 128.0, 128.0]


def test_nesterov_reaches_the_optimizer(tiny):
    for value in (True, False):
        recipe = override(tiny, [f"optimizer.nesterov={str(value).lower()}"])
        made = build_optimizer(recipe, nn.Linear(2, 2))
        assert made.defaults["nesterov"] is value and made.defaults["momentum"] == 0.9


def test_rmsprop_takes_the_step_of_its_equation(tiny):
    """In turn: v = 0.9 v + 0.1 g^2; m = 0.5 m + g / (sqrt(v) + 1); w -= rate m."""
    recipe = override(tiny, ["optimizer={name: rmsprop, lr: 0.1, momentum: 0.5}"])
    layer = nn.Linear(1, 1, bias=False).double()
    made, w = build_optimizer(recipe, layer), layer.weight.item()
    v = m = 0.0
    for g in (2.0, -1.0, 0.5):
        layer.weight.grad = torch.full_like(layer.weight, g)
        made.step()
        v = 0.9 * v + 0.1 * g * g
        m = 0.5 * m + g / (v**0.5 + 1)
        w -= 0.1 * m
        assert layer.weight.item() == pytest.approx(w, rel=1e-12)


def test_rmsprop_goes_on_where_it_stopped(tiny, tmp_path):
    changes = ["epochs=2", "optimizer={name: rmsprop, lr: 0.01}", "attack.steps=1"]
    whole = train(override(tiny, changes), tmp_path / "whole")
    train(override(tiny, [*changes, "epochs=1"]), tmp_path / "part")
    recipe = tmp_path / "part" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 1", "epochs: 2"))
    part = train(override(tiny, changes), tmp_path / "part", resume=True)
    assert [e.loss for e in part.epochs()] == [e.loss for e in whole.epochs()]


# When things happen.


def test_validation_after_every_kth_epoch_and_after_the_last(tiny, tmp_path):
    run = train(override(tiny, ["epochs=5", "validation.every=2"]), tmp_path / "run")
    seen = [epoch.epoch for epoch in run.epochs() if epoch.validation_clean]
    assert seen == [2, 4, 5]


def test_the_recorded_rate_and_radius_are_those_of_the_epochs_last_step(tiny, tmp_path):
    changes = [
        "optimizer.schedule={kind: ramp, last: 3}",
        "threat.schedule={kind: ramp, last: 3}",
    ]
    run = train(override(tiny, changes), tmp_path / "run")
    for epoch in run.epochs():  # three steps an epoch; the last begins at epoch - 1/3
        assert epoch.rate == pytest.approx(0.05 * (epoch.epoch - 1 / 3) / 3)
        assert epoch.eps == pytest.approx(0.1 * (epoch.epoch - 1 / 3) / 3)


def verdicts(right, count=40):
    labels = tuple(i % 4 for i in range(count))
    robust = (True,) * right + (False,) * (count - right)
    return Verdicts(labels=labels, predictions=labels, samples=labels, robust=robust)


@pytest.mark.parametrize(
    "objective, rung", [("pgd", True), ("trades", True), ("standard", False)]
)
def test_overfitting_to_the_training_attack_is_on_record(
    tiny, tmp_path, monkeypatch, objective, rung
):
    monkeypatch.setattr(
        loop, "validate", lambda experiment, stop: Validated(verdicts(40), verdicts(0))
    )
    changes = [f"objective.name={objective}", "epochs=4", "threat.eps=0.001"]
    run = train(override(tiny, changes), tmp_path / "run")
    alarms = [alarm for epoch in run.epochs() for alarm in epoch.alarms]
    assert any("catastrophic overfitting" in alarm for alarm in alarms) is rung
    ramped = override(tiny, [*changes, "threat.schedule={kind: ramp, last: 9}"])
    assert not any(e.alarms for e in train(ramped, tmp_path / "ramped").epochs())


def test_a_gap_alone_is_no_alarm_where_half_of_the_robustness_is_real():
    train_ = Accuracy(correct=40, n=40)
    assert guards.alarms(train_, verdicts(40), verdicts(24), classes=4) == ()
    assert len(guards.alarms(train_, verdicts(40), verdicts(19), classes=4)) == 1


def test_validation_attacks_at_the_full_radius(tiny, monkeypatch):
    from advnorm.training import validate as module

    seen = []
    original = module.run_condition
    monkeypatch.setattr(
        module,
        "run_condition",
        lambda m, b, cell, **k: (seen.append(cell), original(m, b, cell, **k))[1],
    )
    validate(build_experiment(tiny, root=None, device="cpu"), Stop())
    assert [cell.name for cell in seen] == ["clean", "pgd-2", "apgd_dlr-20"]
    assert [cell.threat.eps for cell in seen[1:]] == [0.1, 0.1]


def test_a_checkpoint_is_due_after_its_time_and_then_not_again_at_once(
    tiny, tmp_path, monkeypatch
):
    from advnorm.training import saver as module

    clock = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    saver = Saver(build_experiment(tiny, root=None, device="cpu"), run)
    saves = []
    monkeypatch.setattr(
        saver, "save", lambda state: (saves.append(clock[0]), Saver.save(saver, state))
    )
    for clock[0] in (59.0, 61.0, 100.0, 122.0):
        saver.save_if_due(State(step=9))
    assert saves == [61.0, 122.0]


def test_a_kill_between_metrics_and_checkpoint_repeats_no_epoch(
    tiny, tmp_path, fingerprint
):
    run = train(tiny, tmp_path / "run")
    before = fingerprint(run)
    for path in run.checkpoints.glob("state-00000009*"):
        path.unlink()  # as if killed after the last line was written
    assert fingerprint(train(tiny, tmp_path / "run", resume=True)) == before


# What is refused, and what is kept from disk.


def test_numbers_that_are_not_finite_are_not_saved(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(
        torch.optim.SGD,
        "step",
        lambda self: [
            p.data.fill_(torch.nan) for g in self.param_groups for p in g["params"]
        ],
    )
    with pytest.raises(NotFiniteError, match=r"was not saved.*state-00000000"):
        train(override(tiny, ["checkpoint_seconds=1e-9"]), tmp_path / "run")
    assert newest(Run(tmp_path / "run")).facts["state"]["step"] == 0


def test_validation_that_meets_nan_names_the_last_good_checkpoint(
    tiny, tmp_path, monkeypatch
):
    from advnorm.attacks import NonFiniteGradientError
    from advnorm.training import validate as module

    def judge(*args, **settings):
        raise NonFiniteGradientError("planted")

    monkeypatch.setattr(module, "run_condition", judge)
    with pytest.raises(NotFiniteError, match=r"planted.*The last good checkpoint is"):
        train(tiny, tmp_path / "run")


@pytest.mark.parametrize(
    "change, words",
    [
        ("optimizer.schedule={kind: ramp, last: .nan}", "greater than or equal to 0"),
        (
            "optimizer.schedule={kind: ramp, last: 2, start: -1}",
            "greater than or equal to 0",
        ),
        ("norm.options.eps=abc", "'abc' should be a valid number"),
        ("norm={name: group, options: {groups: 2.5}}", "2.5 should be a valid integer"),
        ("norm={name: group, options: {groups: 0}}", "at least one group"),
        ("norm.name=instance", "norm 'instance' does not run on"),
        ("batch_size=1", "at least 2 samples"),
        (
            "data={name: spheres, augment: flip}",
            "threat.bounds",
        ),
        ("seed=99999999999999999999999", "seed"),
        ("epochs=[", "not YAML"),
        ("threat={norm: l2, eps: 1000}", "1000"),
    ],
)
def test_a_recipe_that_cannot_take_one_step_leaves_no_folder(tiny, tmp_path, change, words):
    with pytest.raises(ValueError, match=words):
        train(override(tiny, [change]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fraction_is_accepted_for_an_option_too(tiny):
    experiment = build_experiment(
        override(tiny, ["norm.options.eps=1/100"]), root=None, device="cpu"
    )
    assert any(getattr(m, "eps", None) == 0.01 for m in experiment.model.modules())


def test_devices_that_are_not_ours_are_refused(tiny):
    with pytest.raises(ValueError, match="write cpu, cuda"):
        build_experiment(tiny, root=None, device="mps")


def test_a_beginning_that_was_cut_short_does_not_stand_in_the_way(tiny, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    train(override(tiny, ["epochs=1"]), tmp_path / "run")


def test_two_processes_cannot_work_in_one_folder(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    ready, begun = os.pipe()
    pid = os.fork()
    if not pid:
        with run.lock():
            os.write(begun, b".")
            signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)  # the child has the lock
        for work in (
            lambda: train(override(tiny, ["epochs=1"]), tmp_path / "run", resume=True),
            lambda: evaluate_run(run, override(tiny, ["epochs=1"])),
        ):
            with pytest.raises(ValueError, match="another process is at work"):
                work()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    evaluate_run(run, override(tiny, ["epochs=1"]))


# Evaluation of runs.


@pytest.fixture
def npz(tmp_path):
    """Return a function that writes a small data set and its recipe's settings."""

    def write(seed=0, flip=0):
        rng = np.random.default_rng(seed)
        arrays = {}
        for part, count in (("train", 80), ("test", 40)):
            labels = np.arange(count) % 2
            images = rng.random((count, 1, 4, 4)) * 0.5 + labels[:, None, None, None] * 0.4
            arrays[f"x_{part}"], arrays[f"y_{part}"] = images.astype(np.float32), labels
        arrays["y_test"][:flip] ^= 1
        np.savez(tmp_path / "data.npz", **arrays)
        return [
            f"data={{name: 'npz:{tmp_path / 'data.npz'}'}}",
            "epochs=1",
            "batch_size=16",
        ]

    return write


def test_other_data_under_the_same_name_is_noticed(tiny, tmp_path, npz):
    recipe = override(tiny, npz())
    run = train(recipe, tmp_path / "run")
    before = {r.key: r.accuracy.correct for r in evaluate_run(run, recipe)}
    npz(flip=8)
    after = {r.key: r.accuracy.correct for r in evaluate_run(run, recipe)}
    assert before["clean"] != after["clean"], "verdicts of the old data were returned"
    with pytest.raises(ValueError, match="begun with other data"):
        train(recipe, tmp_path / "run", resume=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    from advnorm.recipe import Recipe

    recipe = override(
        Recipe(),
        [
            "data.train=96",
            "data.test=40",
            "model.options={depth: 1, width: 8}",
            "threat.eps=0.1",
            "attack.steps=2",
            "epochs=2",
            "validation={samples: 30, steps: 2}",
            "evaluation={conditions: [clean, pgd-3], batch_size: 16}",
        ],
    )
    return recipe, train(recipe, tmp_path_factory.mktemp("done") / "run")


def test_by_default_half_the_radius_and_the_radius(done):
    recipe, run = done
    assert [r.key for r in evaluate_run(run, recipe)] == [
        "clean",
        "pgd-3_linf_0.05",
        "pgd-3_linf_0.1",
    ]


def test_best_and_last_weights_are_what_they_say(done):
    recipe, run = done
    for kind, prefix in (("best", "best-"), ("last", "state-")):
        (clean, *_) = evaluate_run(run, override(recipe, [f"evaluation.weights={kind}"]))
        expected = newest(run, "best" if kind == "best" else "state")
        assert clean.weights == f"{expected.path.stem} sha256:{expected.digest}"
        assert clean.weights.startswith(prefix)


@pytest.mark.parametrize(
    "change", ["weights=last", "samples=20", "step_ratio=1.0", "data=npz", "seed", "none"]
)
def test_whatever_decides_a_verdict_makes_it_anew_and_nothing_else_does(
    done, monkeypatch, tmp_path, change
):
    recipe, run = done
    evaluate_run(run, recipe)
    judged = []
    original = judged_cells.run_condition
    monkeypatch.setattr(
        judged_cells,
        "run_condition",
        lambda *a, **k: (judged.append(a[2].key), original(*a, **k))[1],
    )
    if change == "seed":
        changed = override(recipe, ["seed=1"])
    elif change == "data=npz":
        rng = np.random.default_rng(0)
        arrays = {
            f"x_{p}": rng.random((40, 1, 8, 8)).astype(np.float32)
            for p in ("train", "test")
        }
        labels = {f"y_{p}": np.arange(40) % 10 for p in ("train", "test")}
        np.savez(tmp_path / "other.npz", **arrays, **labels)
        changed = override(recipe, [f"evaluation.data=npz:{tmp_path / 'other.npz'}"])
        changed = override(changed, ["data.train=null", "data.test=null"])
    elif change == "none":
        changed = override(recipe, ["evaluation.batch_size=7"])
    else:
        changed = override(recipe, [f"evaluation.{change}"])
    results = evaluate_run(run, changed)
    expected = {"none": 0, "samples=20": 0, "step_ratio=1.0": 2}.get(change, 3)
    assert len(judged) == expected, judged
    if change == "data=npz":
        assert all("~npz-" in r.key and r.other for r in results)
    evaluate_run(run, recipe)


def test_a_result_of_old_settings_is_not_taken_for_the_new(done, monkeypatch):
    """A kill between the last verdicts and the result leaves an old result behind."""
    recipe, run = done
    evaluate_run(run, recipe)
    changed = override(recipe, ["evaluation.samples=20", "evaluation.conditions=[clean]"])
    monkeypatch.setattr(Run, "write_result", lambda self, result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate_run(run, changed)
    monkeypatch.undo()
    (clean,) = evaluate_run(run, changed)
    assert clean.accuracy.n == 20 and run.result("clean").accuracy.n == 20
    evaluate_run(run, recipe)


def test_statistics_that_are_not_numbers_are_refused_before_an_attack(done, tmp_path):
    recipe, run = done
    found = newest(run, "best")
    spoilt = {k: v.clone() for k, v in found.tensors.items()}
    name = next(k for k in spoilt if k.endswith("running_var"))
    spoilt[name][0] = torch.nan
    other = Run(tmp_path / "run")
    other.checkpoints.mkdir(parents=True)
    checkpoints.save(other.checkpoints, "best", 1, spoilt, {})
    with pytest.raises(ValueError, match="NaN or infinite"):
        evaluate_run(other, recipe)


def test_a_number_option_of_the_wrong_kind_names_the_option(tiny):
    with pytest.raises(RecipeError, match="option 'affine' of norm 'batch'"):
        build_experiment(override(tiny, ["norm.options.affine=3"]), root=None, device="cpu")


def test_image_augmentation_of_vectors_is_refused_before_a_folder_is_made(tiny, tmp_path):
    changes = ["data={name: spheres, augment: flip}", "threat={eps: 0.1, bounds: [-2, 2]}"]
    with pytest.raises(ValueError, match=r"data\.augment=none"):
        train(override(tiny, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
