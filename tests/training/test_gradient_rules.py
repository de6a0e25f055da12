"""Gradient rules in training: every recipe field with them, and refusals before it."""

import pytest
import torch
from safetensors.torch import load_file

from advnorm.recipe import RecipeError, override
from advnorm.training import train
from advnorm.training.build import build_experiment
from advnorm.training.dry_run import dry_run

RULES = {
    "sam": "{name: sam, rho: 0.05}",
    "apart": "{name: apart, eps: 0.1, samples: 16, groups: 4}",
    "apart_sam": "{name: apart_sam, eps: 0.1, groups: 2}",
}


def weights(run):
    return sorted(run.checkpoints.glob("state-*.safetensors"))[-1].read_bytes()


def trained(recipe, path, *changes):
    return train(override(recipe, ["epochs=1", *changes]), path)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_trains_other_weights_than_plain_and_the_same_again(tiny, tmp_path, rule):
    change = f"gradient={RULES[rule]}"
    one, two, plain = (
        weights(trained(tiny, tmp_path / name, *changes))
        for name, changes in (("one", [change]), ("two", [change]), ("plain", []))
    )
    assert one == two != plain


@pytest.mark.parametrize("rule", RULES)
def test_a_stopped_run_goes_on_to_the_same_weights(tiny, tmp_path, fingerprint, rule):
    recipe = override(tiny, [f"gradient={RULES[rule]}", "epochs=2"])
    whole = train(recipe, tmp_path / "whole")
    short = train(override(recipe, ["epochs=1"]), tmp_path / "cut")
    (short.path / "recipe.yaml").write_bytes((whole.path / "recipe.yaml").read_bytes())
    again = train(recipe, short.path, resume=True)
    assert fingerprint(again)["weights"] == fingerprint(whole)["weights"]


@pytest.mark.parametrize(
    "changes",
    [
        ["precision=bfloat16"],
        ["precision=float16"],
        ["objective.name=trades", "optimizer.name=adam", "optimizer.lr=0.001"],
        ["data.mixup=1.0", "objective.name=standard"],
        ["optimizer.accumulate=2", "gradient.samples=8"],
        ["optimizer.clip_norm=0.1"],
        ["norm.name=mixture", "objective.name=mixed"],
        ["norm.name=borrowed", "objective.name=mixed", "objective.clean_share=0.5"],
        ["norm.name=affine", "objective.name=mixed"],
        ["gradient.groups=8", "objective={name: mixed, clean_share: 0.5}"],
        ["norm.freeze_epochs=1", "epochs=2"],
        ["optimizer.parameters=norms"],
    ],
    ids=" ".join,
)
def test_apart_sam_works_with(tiny, tmp_path, changes):
    rule = "gradient={name: apart_sam, eps: 0.1, samples: 16, groups: 2}"
    run = trained(tiny, tmp_path / "run", rule, *changes)
    assert run.epochs()[-1].loss < 10


@pytest.mark.parametrize("rule", ["plain", *RULES])
def test_a_longest_gradient_makes_a_small_step(tiny, tmp_path, rule):
    """Plain SGD with lr 1 moves the weights by at most the clipped length a step."""
    recipe = override(
        tiny,
        [
            f"gradient={RULES.get(rule, '{name: plain}')}",
            "optimizer={lr: 1.0, momentum: 0.0, clip_norm: 0.001}",
            "epochs=1",
        ],
    )
    before = build_experiment(recipe, root=None, device="cpu").model.state_dict()
    run = train(recipe, tmp_path / "run")
    from safetensors.torch import load_file

    after = load_file(sorted(run.checkpoints.glob("state-*.safetensors"))[-1])
    moved = torch.stack(
        [
            (after[f"model/{key}"] - value).norm()
            for key, value in before.items()
            if "weight" in key or "bias" in key
        ]
    ).norm()
    steps = run.epochs()[-1].step
    assert 0.0001 < moved <= 0.001 * steps * 1.0001


def test_accumulated_parts_of_a_model_without_norm_are_the_whole(tiny, tmp_path):
    """With samples that do not see each other, parts make no difference but rounding."""
    changes = ["norm.name=none", "precision=float64", "epochs=1"]
    one = trained(tiny, tmp_path / "one", *changes)
    two = trained(tiny, tmp_path / "two", *changes, "optimizer.accumulate=4")
    assert one.epochs()[0].loss == pytest.approx(two.epochs()[0].loss, rel=1e-9)
    assert one.epochs()[0].train == two.epochs()[0].train
    assert one.epochs()[0].parts == pytest.approx(two.epochs()[0].parts, rel=1e-9)


def test_images_that_pass_together_are_parts_whose_last_moves_the_statistics(
    tiny, tmp_path
):
    """Eight of 32 images at a time are accumulate=4, but for the running statistics."""
    changes = ["objective.name=standard", "precision=float64", "epochs=1"]
    parts = trained(tiny, tmp_path / "parts", *changes, "optimizer.accumulate=4")
    once = trained(tiny, tmp_path / "once", *changes, "optimizer.together=8")
    assert [epoch.loss for epoch in once.epochs()] == [e.loss for e in parts.epochs()]
    states = [
        load_file(sorted(run.checkpoints.glob("state-*.safetensors"))[-1])
        for run in (parts, once)
    ]
    before, after = states
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    names = {key.rpartition(".")[2] for key in moved}
    assert names == {"running_mean", "running_var", "num_batches_tracked"}
    counts = [key for key in moved if key.endswith("num_batches_tracked")]
    steps = once.epochs()[-1].step
    assert {int(after[key]) for key in counts} == {steps}
    assert {int(before[key]) for key in counts} == {4 * steps}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["optimizer.together=5"], "together=5 does not divide"),
        (["optimizer={together: 8, accumulate: 2}"], "leave out accumulate"),
        (["gradient={name: apart, samples: 64}"], "64 samples of a batch of 32"),
        (["gradient={name: apart, groups: 5}"], "5 groups do not divide the 32"),
        (["gradient={name: apart, samples: 16, groups: 3}"], "3 groups do not divide"),
        (["gradient={name: apart, eps: -0.1}"], "gradient.eps"),
        (["gradient={name: sam, rho: -1}"], "gradient.rho"),
        (["gradient={name: sam, eps: 0.1}"], "no option of gradient rule 'sam'"),
        (["gradient={name: spa}"], "did you mean 'sam'"),
        (["gradient={name: apart}", "compile=true"], "compile=false"),
        (["gradient={name: apart}", "norm.name=none"], "no batch norm"),
        (["gradient={name: apart}", "norm.name=dual", "objective.name=mixed"], "DualNorm"),
        (["gradient={name: apart}", "objective.name=ibp"], "without them"),
        (["optimizer.accumulate=3"], "accumulate=3 does not divide"),
        (["optimizer.accumulate=2", "gradient={name: apart, samples: 32}"], "batch of 16"),
        (
            [
                "gradient={name: apart, groups: 16}",
                "objective={name: mixed, clean_share: 0.25}",
            ],
            "clean_share",
        ),
        (["gradient={name: apart, samples: 1}"], "samples: 1, groups: 1.*raise samples"),
        (
            [
                "gradient={name: apart, groups: 16}",
                "objective={name: mixed, clean_share: 0.5, batching: sequential}",
            ],
            "samples: 32, groups: 16.*lower groups",
        ),
    ],
)
def test_bad_settings_are_refused_before_a_folder_is_made(tiny, tmp_path, changes, words):
    with pytest.raises((RecipeError, ValueError, NotImplementedError), match=words):
        train(override(tiny, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_that_the_data_cannot_fill_is_checked_too(tiny):
    recipe = override(tiny, ["batch_size=256", "gradient={name: apart, samples: 200}"])
    experiment = build_experiment(recipe, root=None, device="cpu")
    with pytest.raises(ValueError, match="200 samples of a batch of"):
        dry_run(experiment)
