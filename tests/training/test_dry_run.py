"""Recipes that cannot be trained are refused before a folder is written."""

import pytest

from advnorm.recipe import RecipeError, override
from advnorm.training import train
from advnorm.training.build import build_experiment


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


def test_a_number_option_of_the_wrong_kind_names_the_option(tiny):
    with pytest.raises(RecipeError, match="option 'affine' of norm 'batch'"):
        build_experiment(override(tiny, ["norm.options.affine=3"]), root=None, device="cpu")


def test_image_augmentation_of_vectors_is_refused_before_a_folder_is_made(tiny, tmp_path):
    changes = ["data={name: spheres, augment: flip}", "threat={eps: 0.1, bounds: [-2, 2]}"]
    with pytest.raises(ValueError, match=r"data\.augment=none"):
        train(override(tiny, changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
