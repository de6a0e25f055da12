"""Perturbed batch-norm statistics of a run: recorded, cached, refused."""

import pytest

from advnorm.recipe import Recipe, override
from advnorm.runs import perturb_run
from advnorm.training import train


def test_a_run_is_perturbed_recorded_and_not_perturbed_twice(tmp_path):
    recipe = override(
        short_recipe(),
        ["perturbation={radii: [0, 0.3], directions: [sign, adversarial]}"],
    )
    run = train(recipe, tmp_path / "run")
    weights = {p.name: p.read_bytes() for p in run.checkpoints.iterdir()}
    first = perturb_run(run, recipe)
    assert len(first) == 2 * 2 * 2
    assert {r.key for r in run.results()} == {r.key for r in first}
    assert "statistics-sign_mean_0.3" in {r.key for r in first}
    for result in first:
        assert result.accuracy.n == 40 and result.statistics == "running"
        assert run.verdicts(result.key).accuracy() == result.accuracy
    clean = {r.accuracy.correct for r in first if r.threat.eps == 0}
    assert len(clean) == 1
    assert perturb_run(run, recipe) == first
    assert {p.name: p.read_bytes() for p in run.checkpoints.iterdir()} == weights
    batch = override(
        recipe,
        [
            "perturbation={statistics: batch, groups: 4, split: train, radii: [0.1]}",
            "evaluation={batch_size: 20, samples: 80}",
        ],
    )
    results = perturb_run(run, batch)
    assert {r.condition for r in results} == {"statistics-sign-batch-4"}
    assert {(r.accuracy.n, r.split, r.statistics) for r in results} == {
        (80, "train", "batch")
    }


def test_groups_that_do_not_divide_the_batches_of_a_run_are_refused(tmp_path):
    recipe = short_recipe()
    run = train(recipe, tmp_path / "run")
    wrong = override(recipe, ["perturbation={statistics: batch, groups: 3}"])
    with pytest.raises(ValueError, match="groups=3 does not divide"):
        perturb_run(run, wrong)


def short_recipe():
    return override(
        Recipe(),
        [
            "data={train: 96, test: 40}",
            "model.options={depth: 1, width: 8}",
            "objective.name=standard",
            "epochs=1",
            "batch_size=32",
            "validation={samples: 30, steps: 1}",
            "evaluation.batch_size=16",
        ],
    )
