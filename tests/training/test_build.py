"""From recipe to objects: the optimizer's groups and the schedules by hand."""

import pytest
import torch

from advnorm.recipe import RecipeError, override
from advnorm.records import Verdicts
from advnorm.training import checkpoints, loop, train
from advnorm.training.build import build_experiment
from advnorm.training.dry_run import dry_run
from advnorm.training.state import State
from advnorm.training.step import Stepper
from advnorm.training.validate import Validated


def groups(recipe):
    experiment = build_experiment(recipe, root=None, device="cpu")
    return {
        (g["weight_decay"], g["factor"]): sorted(p.ndim for p in g["params"])
        for g in experiment.optimizer.param_groups
    }


def test_weight_decay_with_and_without_norm_parameters(tiny):
    """One hidden layer: two weight matrices, two biases, a norm's scale and shift."""
    decayed = override(tiny, ["optimizer.weight_decay=5e-4"])
    assert groups(decayed) == {(5e-4, 1.0): [1, 1, 1, 1, 2, 2]}
    spared = override(decayed, ["optimizer.decay_norms=false"])
    assert groups(spared) == {(5e-4, 1.0): [2, 2], (0.0, 1.0): [1, 1, 1, 1]}


def test_fixup_scalars_have_their_own_lr(tiny):
    changes = ["data.size=16", "model={name: fixup_resnet20, options: {width: 4}}"]
    changes += ["norm.name=none", "optimizer.scalar_lr_factor=0.1", "attack.steps=1"]
    experiment = build_experiment(override(tiny, changes), root=None, device="cpu")
    small = next(g for g in experiment.optimizer.param_groups if g["factor"] == 0.1)
    assert {p.numel() for p in small["params"]} == {1}
    assert len(small["params"]) == 9 * 5 + 2  # nine blocks, the stem, the classifier
    batch = next(
        experiment.data.train.batches(
            torch.arange(8), batch_size=8, device=experiment.device
        )
    )
    Stepper(experiment)(batch, State())
    assert small["lr"] == 0.05 * 0.1


def test_rate_and_radius_follow_their_schedules_within_an_epoch(tiny):
    changes = [
        "optimizer.schedule={kind: ramp, last: 2}",
        "threat.schedule={kind: ramp, first: 1, last: 2}",
    ]
    experiment = build_experiment(override(tiny, changes), root=None, device="cpu")
    stepper = Stepper(experiment)
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    state = State(epoch=1, seen=1, step=4)  # a third into the second epoch
    stepper(batch, state)
    assert experiment.optimizer.param_groups[0]["lr"] == 0.05 * (4 / 3) / 2
    torch.testing.assert_close(stepper.eps(4 / 3), 0.1 / 3)
    assert stepper.eps(0.5) == 0.0
    stepper(batch, State())  # no radius yet: the images stay clean


def test_the_attack_of_training_has_the_recipes_settings(tiny, monkeypatch):
    from advnorm.training import step

    seen = {}

    def spy(logits_fn, clean, labels, threat, **settings):
        seen.update(settings, threat=threat)
        return clean

    monkeypatch.setattr(step, "pgd", spy)
    changes = ["attack.clean_start=0.2", "attack.target=random", "threat.norm=l2"]
    changes += ["threat.schedule={kind: ramp, first: 0, last: 2}", "attack.step_size=0.04"]
    experiment = build_experiment(override(tiny, changes), root=None, device="cpu")
    batch = next(
        experiment.data.train.batches(
            torch.arange(32), batch_size=32, device=experiment.device
        )
    )
    Stepper(experiment)(batch, State(epoch=1))
    assert seen["threat"].name == "l2" and seen["threat"].eps == 0.05
    assert (seen["steps"], seen["step_size"], seen["clean_start"]) == (2, 0.02, 0.2)
    assert seen["goal"].__name__ == "random_target"


def test_the_same_seed_starts_from_the_same_weights_and_another_does_not(tiny):
    def start(seed):
        experiment = build_experiment(
            override(tiny, [f"seed={seed}"]), root=None, device="cpu"
        )
        return next(p for p in experiment.model.parameters() if p.ndim > 1)

    assert torch.equal(start(1), start(1)) and not torch.equal(start(1), start(2))


@pytest.mark.parametrize(
    "prefer, best", [("clean", [1, 3]), ("robust", [1, 2]), ("clean+robust", [1, 2])]
)
def test_the_best_checkpoint_maximizes_held_out_accuracy(
    tiny, tmp_path, monkeypatch, prefer, best
):
    """Clean 50, 40, 60 of 100 and robust 10, 45, 11: the third epoch is best when clean."""
    rates = iter([(50, 10), (40, 45), (60, 11)])

    def verdicts(right):
        return Verdicts(robust=(True,) * right + (False,) * (100 - right))

    monkeypatch.setattr(
        loop, "validate", lambda experiment, stop: Validated(*map(verdicts, next(rates)))
    )
    run = train(override(tiny, [f"validation.select_by={prefer}"]), tmp_path / "run")
    assert [line.epoch for line in run.epochs() if line.best] == best
    newest = checkpoints.load(run.checkpoints, "best", warnings=[])
    assert newest.facts["step"] == 3 * best[-1]


def test_channels_last_trains_to_the_same_loss(tiny):
    changes = ["data.size=16", "model={name: cnn_small}", "precision=float64"]

    def loss(more):
        experiment = build_experiment(
            override(tiny, changes + more), root=None, device="cpu"
        )
        batch = next(
            experiment.data.train.batches(
                torch.arange(8), batch_size=8, device=experiment.device
            )
        )
        return Stepper(experiment)(batch, State()).loss

    assert abs(loss([]) - loss(["channels_last=true"])) < 1e-9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["norm.name=batch"], "no clean image of the 2 that pass together"),
        (["norm.name=dual", "objective.clean_share=0.5"], "one clean image per batch"),
    ],
)
def test_clean_images_that_parts_of_a_batch_would_lose_are_refused(tiny, changes, words):
    """Each part of two rows rounds its share of clean images by itself."""
    base = ["objective={name: mixed, clean_share: 0.2}", "batch_size=16"]
    parts = "optimizer.accumulate=8"
    build_experiment(override(tiny, [*base, changes[0]]), root=None, device="cpu")
    with pytest.raises(RecipeError, match=words):
        build_experiment(override(tiny, [*base, *changes, parts]), root=None, device="cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["norm.options.eps=null"], "'eps' of norm 'batch': None should be a valid number"),
        (["objective.name=trades", "attack.target=random"], "has no target"),
    ],
)
def test_settings_without_a_meaning_are_refused(tiny, changes, words):
    with pytest.raises(RecipeError, match=words):
        build_experiment(override(tiny, changes), root=None, device="cpu")


def test_a_momentum_may_be_none(tiny):
    build_experiment(
        override(tiny, ["norm.options.momentum=null"]), root=None, device="cpu"
    )


CROWN = "objective={name: crown_ibp, beta: %s, beta_schedule: {kind: ramp, last: 2, %s}}"
NO_CLEAN = "objective={name: mixed, gamma: 1, clean_share: 0, gamma_schedule: {%s}}"
DOUBLED = "threat.schedule={kind: ramp, last: 2, stop: 2}"
ALONE = "optimizer.accumulate=32"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["threat.eps=0.6", DOUBLED], "threat.schedule: eps would reach 1.2, .*lower"),
        (["threat={norm: l2, eps: 6}", DOUBLED], "threat.schedule: eps would reach 12,"),
        (["objective={name: crown_ibp, beta: 2}"], "beta .* would reach 2, above 1: lower"),
        ([CROWN % (0.6, "stop: 2")], "beta .* would reach 1.2, above 1: lower"),
        ([NO_CLEAN % "kind: constant"], "clean_share=0 leaves none .*: lower gamma"),
        ([NO_CLEAN % "kind: ramp, last: 2"], "clean_share=0 leaves none"),
        ([ALONE], "32 passes by 1 at a time, .*: lower optimizer.accumulate or raise"),
        ([ALONE, "data.size=16", "model={name: cnn_small}"], "by 1 at a time"),
        ([ALONE, "objective={name: mixed, batching: sequential}"], "by 1 at a time"),
        ([ALONE, "objective.name=mixed", "norm.name=mixture"], "by 1 at a time"),
        ([ALONE, "objective.name=mixed", "attack.statistics=batch"], "by 1 at a time"),
        ([ALONE, "objective.name=ibp"], "by 1 at a time"),
        (
            [
                "objective={name: mixed, batching: sequential, clean_share: 0.25}",
                "batch_size=4",
            ],
            "passes by 4 at a time, .*: raise batch_size or objective.clean_share",
        ),
    ],
)
def test_what_would_fail_in_training_is_refused_before(tiny, tmp_path, changes, words):
    with pytest.raises(RecipeError, match=words) as error:
        train(override(tiny, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists() and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        [CROWN % (2, "start: 0.5, stop: 0")],  # 1 at most
        [NO_CLEAN % "kind: ramp, last: 2, start: 0.9, stop: 0"],
        ["objective={name: trades, beta: 6}", "threat.eps=0.5", DOUBLED],
        [ALONE, "objective.name=mixed"],  # one clean and one adversarial image
        [ALONE, "objective.name=mixed", "gradient.name=apart"],
        [ALONE, "norm.name=none"],
        [ALONE, "objective.name=standard", "attack.statistics=batch", "norm.name=layer"],
        [ALONE, "data.size=32", "model={name: vgg11, options: {width: 2}}"],  # maps of 2x2
    ],
    ids=str,
)
def test_what_does_not_fail_in_training_is_not_refused(tiny, tmp_path, changes):
    run = train(override(tiny, ["epochs=3", "data.train=32", *changes]), tmp_path / "run")
    assert len(run.epochs()) == 3


def test_a_schedule_above_one_trains_beyond_eps(tiny, tmp_path):
    """From 0 to 0.2 in two epochs of three steps each; the last step of each is told."""
    run = train(override(tiny, [DOUBLED]), tmp_path / "run")
    assert [line.eps for line in run.epochs()] == pytest.approx([0.2 / 3, 0.5 / 3, 0.2])


@pytest.mark.parametrize("rule", ["plain", "apart"])
def test_trying_out_moves_nothing(tiny, rule):
    changes = [ALONE, "objective.name=mixed", f"gradient.name={rule}"]
    experiment = build_experiment(override(tiny, changes), root=None, device="cpu")
    before = {key: value.clone() for key, value in experiment.model.state_dict().items()}
    random, training = (
        torch.get_rng_state(),
        [m.training for m in experiment.model.modules()],
    )
    dry_run(experiment)
    assert all(torch.equal(before[k], v) for k, v in experiment.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert [m.training for m in experiment.model.modules()] == training
    assert all(p.grad is None and p.requires_grad for p in experiment.model.parameters())


def test_a_problem_is_reported_once(tiny):
    with pytest.raises(RecipeError) as error:
        build_experiment(override(tiny, ["objective.name=pdg"]), root=None, device="cpu")
    assert str(error.value).count("no objective 'pdg'") == 1
