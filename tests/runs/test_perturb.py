"""Perturbed batch-norm statistics of a run: recorded, cached, refused."""

import pytest
import torch

from advnorm import load
from advnorm.evaluation.perturbed_statistics import Perturbation, directions
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


def test_every_draw_is_a_direction_of_its_own_and_the_first_is_the_only_one_of_before(
    tmp_path,
):
    recipe = override(
        short_recipe(),
        ["perturbation={radii: [0.9], parts: [mean], directions: [sign, adversarial]}"],
    )
    run = train(recipe, tmp_path / "run")
    before = perturb_run(run, recipe)
    more = perturb_run(run, override(recipe, ["perturbation.draws=3"]))
    names = ["sign", "sign-draw-1", "sign-draw-2", "adversarial"]
    assert [r.condition for r in more] == [f"statistics-{name}" for name in names]
    assert [more[0], more[3]] == before
    model = load(run.path)
    signs = [directions(model, Perturbation("sign", "mean", draw=draw)) for draw in (0, 1)]
    first, second = (torch.cat([v.mean for v in each.values()]) for each in signs)
    assert set(first.tolist()) == {-1.0, 1.0} and not torch.equal(first, second)


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
