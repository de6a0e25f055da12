"""Whole runs with norms and objectives of two domains."""

import pytest
import torch
from torch.nn import functional

from advnorm import norms
from advnorm.objectives import CERTIFIED, OBJECTIVES, TWO_DOMAINS
from advnorm.recipe import RecipeError, override
from advnorm.records import Verdicts
from advnorm.runs import evaluate_run, load_trained
from advnorm.runs.condition import worst_of
from advnorm.threat import Linf
from advnorm.training import checkpoints, load_data, train
from advnorm.training.build import build_experiment
from advnorm.training.state import State
from advnorm.training.step import Stepper


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "norm", ["batch", "mixture", "dual", "borrowed", "affine", "group", "none"]
)
def test_every_norm_trains_with_every_objective_that_fits(tiny, tmp_path, norm, objective):
    recipe = override(
        tiny, [f"norm.name={norm}", f"objective.name={objective}", "epochs=2"]
    )
    apart = objective in CERTIFIED and norm in ("mixture", "affine")
    if apart or (norm == "dual" and objective not in TWO_DOMAINS):
        with pytest.raises(RecipeError, match=r"needs both|norm separates"):
            train(recipe, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    run = train(recipe, tmp_path / "run")
    assert len(run.epochs()) == 2 and all(
        r.accuracy.n == 40 for r in evaluate_run(run, recipe)
    )


BRANCHED = pytest.mark.parametrize("norm", ["mixture", "affine"])


def branched(tiny, norm, *more):
    return override(tiny, [f"norm.name={norm}", "objective.name=mixed", *more])


@BRANCHED
def test_norms_with_branches_have_an_answer_a_branch_and_the_worst_of_both(
    tiny, tmp_path, norm
):
    recipe = branched(
        tiny, norm, "evaluation.branch=worst", "evaluation.conditions=[clean, pgd-3]"
    )
    run = train(recipe, tmp_path / "run")
    results = {result.key: result for result in evaluate_run(run, recipe)}
    assert set(results) == {"clean@worst", "pgd-3_linf_0.05@worst", "pgd-3_linf_0.1@worst"}
    for key in ("clean", "pgd-3_linf_0.1"):
        branches = [run.result(f"{key}@{branch}") for branch in ("clean", "adversarial")]
        assert [b.branch for b in branches] == ["clean", "adversarial"]
        both = [run.verdicts(b.key).robust for b in branches]
        assert run.verdicts(f"{key}@worst").robust == tuple(
            a and b for a, b in zip(*both, strict=True)
        )


@BRANCHED
def test_a_collapsed_branch_has_the_verdicts_of_that_branch(tiny, tmp_path, norm):
    from advnorm.evaluation import evaluate

    recipe = branched(
        tiny, norm, "evaluation.conditions=[clean, pgd-3]", "evaluation.threat.eps=[0.1]"
    )
    run = train(recipe, tmp_path / "run")
    data = load_data(recipe, root=None)
    model, _, _ = load_trained(run, recipe, data, weights="best", warnings=[])
    order = torch.arange(len(data.test))
    batch = next(data.test.batches(order, batch_size=40, device=torch.device("cpu")))
    model.eval()(batch.images)
    for branch in ("clean", "adversarial"):
        evaluate_run(run, override(recipe, [f"evaluation.branch={branch}"]))
        plain = norms.collapse(model, branch)
        results = evaluate(
            plain, batch.images, batch.labels, Linf(0.1), conditions=["clean"]
        )
        expected = run.verdicts(f"clean@{branch}")
        assert results.verdicts["clean"].predictions == expected.predictions


def test_the_worst_of_two_keeps_the_prediction_that_fell():
    one = Verdicts(
        samples=(0, 1), labels=(1, 1), predictions=(1, 1), robust=(True, True), by=("", "")
    )
    two = one.model_copy(
        update={"predictions": (1, 2), "robust": (True, False), "by": ("", "pgd-3")}
    )
    for pair in ([one, two], [two, one]):
        worst = worst_of(pair)
        assert worst.predictions == (1, 2) and worst.robust == (True, False)
        assert worst.by == ("", "pgd-3")


def test_the_worst_of_two_is_wrong_before_any_attack_if_one_is():
    one = Verdicts(
        samples=(0,), labels=(1,), predictions=(2,), robust=(False,), by=("pgd-3",)
    )
    two = one.model_copy(update={"predictions": (3,), "by": ("",)})
    for pair in ([one, two], [two, one]):
        assert worst_of(pair).by == ("",) and worst_of(pair).predictions == (3,)


def buffers(run, kind="state"):
    tensors = checkpoints.load(run.checkpoints, kind, warnings=[]).tensors
    return {k: v for k, v in tensors.items() if "running" in k}


def test_frozen_statistics_stand_still_in_the_last_epochs(tiny, tmp_path):
    recipe = override(tiny, ["epochs=3", "norm.freeze_epochs=2"])
    one = train(override(tiny, ["epochs=1"]), tmp_path / "one")
    three = train(recipe, tmp_path / "three")
    for key, value in buffers(one).items():
        assert torch.equal(value, buffers(three)[key]), key
    free = train(tiny, tmp_path / "free")
    assert not all(torch.equal(v, buffers(three)[k]) for k, v in buffers(free).items())


def test_fine_tuning_moves_the_norms_alone(tiny, tmp_path):
    """xie2020 4.4: take an adversarially trained model, fine-tune its norms on clean images."""
    first = train(tiny, tmp_path / "first")
    recipe = override(
        tiny,
        [
            f"init_from={first.path}",
            "optimizer.parameters=norms",
            "objective.name=standard",
        ],
    )
    tuned = train(recipe, tmp_path / "tuned")
    before = checkpoints.load(first.checkpoints, "best", warnings=[]).tensors
    after = checkpoints.load(tuned.checkpoints, "state", warnings=[]).tensors
    moved = {k for k in before if not torch.equal(before[k], after[k])}
    assert moved and all("hidden.1." in name for name in moved), moved


@pytest.mark.parametrize("objective", ["standard", "pgd", "mixed"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_smoothed_labels_are_torchs(tiny, objective, smoothing):
    changes = [f"objective.name={objective}", f"data.label_smoothing={smoothing}"]
    recipe = override(tiny, [*changes, "attack.target=random", "norm.name=none"])
    experiment, seen = build_experiment(recipe, root=None, device="cpu"), []
    order = torch.arange(experiment.batch_size)
    batch = next(
        experiment.data.train.batches(
            order, batch_size=len(order), device=experiment.device
        )
    )
    experiment.model.register_forward_hook(
        lambda model, inputs, output: seen.append(output.detach())
    )
    numbers = Stepper(experiment)(batch, State())
    labels = batch.labels.repeat(2 if objective == "mixed" else 1)
    loss = functional.cross_entropy(seen[-1], labels, label_smoothing=smoothing)
    assert numbers.loss == pytest.approx(float(loss), rel=1e-5)


def test_a_start_of_another_shape_or_that_is_not_there_is_refused(tiny, tmp_path):
    first = train(override(tiny, ["epochs=1"]), tmp_path / "first")
    wider = override(tiny, [f"init_from={first.path}", "model.options.width=9"])
    with pytest.raises(RecipeError, match="another model"):
        build_experiment(wider, root=None, device="cpu")
    with pytest.raises(FileNotFoundError, match="not a run folder"):
        build_experiment(
            override(tiny, [f"init_from={tmp_path / 'no'}"]), root=None, device="cpu"
        )
    bare = ["optimizer.parameters=norms", "norm.name=none"]
    with pytest.raises(RecipeError, match="no parameters"):
        build_experiment(override(tiny, bare), root=None, device="cpu")


def spied(tiny, monkeypatch, changes, state):
    """Return the settings that an objective and its adversary get in one step."""
    from advnorm.training import step

    recipe = override(tiny, changes)
    experiment = build_experiment(recipe, root=None, device="cpu")
    stepper, seen = Stepper(experiment), {}

    def objective(model, clean, labels, adversary, **weights):
        seen.update(weights, statistics=adversary.statistics)
        return OBJECTIVES["mixed"](model, clean, labels, adversary)

    def pgd(*args, steps, **settings):
        seen.update(steps=steps, step_size=settings["step_size"])
        return args[1]

    monkeypatch.setattr(step, "pgd", pgd)
    stepper.objective = objective
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    stepper(batch, state)
    return seen


def test_gamma_beta_steps_and_statistics_follow_their_schedules(tiny, monkeypatch):
    changes = [
        "objective={name: mixed_kl, gamma: 0.4, beta: 2}",
        "objective.gamma_schedule={kind: ramp, last: 2, start: 1, stop: 0}",
        "objective.beta_schedule={kind: ramp, last: 4}",
        "attack.steps=8",
        "attack.steps_schedule={kind: ramp, last: 2}",
        "attack.statistics={0: batch, 1: running}",
    ]
    start = spied(tiny, monkeypatch, changes, State())
    assert start["gamma"] == 0.4 and start["beta"] == 0 and start["steps"] == 1
    assert start["statistics"] == "batch"
    later = spied(tiny, monkeypatch, changes, State(epoch=1))
    assert later["gamma"] == pytest.approx(0.2) and later["beta"] == pytest.approx(0.5)
    assert later["steps"] == 4 and later["statistics"] == "running"


@pytest.mark.parametrize(
    "change, words",
    [
        (
            "objective={name: trades, gamma: 0.5}",
            "did you mean|no option of objective 'trades'",
        ),
        ("objective={name: pgd, beta: 1}", "objective 'pgd' has no options: remove 'beta'"),
        ("objective={name: trades, gamma_schedule: {kind: ramp, last: 2}}", "has no gamma"),
        ("objective={name: mixed, batching: stacked}", "sequential"),
        ("attack.statistics={0: train}", "must not move"),
        ("norm.freeze_epochs=3", "must move the running statistics first"),
        ("norm.where=[]", "names no place"),
        (
            "objective={name: mixed, gamma: 0.8, gamma_schedule: {kind: ramp, last: 2, stop: 2}}",
            "above 1",
        ),
    ],
)
def test_a_setting_that_the_objective_does_not_have_is_refused(tiny, change, words):
    with pytest.raises(RecipeError, match=words):
        build_experiment(override(tiny, [change]), root=None, device="cpu")


def test_trades_refuses_a_clean_start(tiny):
    changes = ["objective.name=trades", "attack.clean_start=0.2"]
    with pytest.raises(RecipeError, match="flat at the clean image"):
        build_experiment(override(tiny, changes), root=None, device="cpu")


def test_norms_on_the_input_or_on_chosen_places(tiny):
    def kinds(where):
        experiment = build_experiment(
            override(tiny, [f"norm.where={where}", "model.options.depth=2"]),
            root=None,
            device="cpu",
        )
        return [
            type(m).__name__
            for m in experiment.model.modules()
            if type(m).__name__ in ("BatchNorm", "Linear")
        ]

    assert kinds("all") == ["Linear", "BatchNorm", "Linear", "BatchNorm", "Linear"]
    assert kinds("input") == ["BatchNorm", "Linear", "Linear", "Linear"]
    assert kinds("[1]") == ["Linear", "Linear", "BatchNorm", "Linear"]
    with pytest.raises(ValueError, match=r"2 places for a norm .* no place 5"):
        kinds("[0, 5]")


def test_a_branch_that_the_model_does_not_have_is_refused(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    with pytest.raises(ValueError, match="no mixture norm"):
        evaluate_run(run, override(tiny, ["evaluation.branch=clean"]))
