"""Whole runs whose first layer knows of tiles."""

import pytest
import torch

from advnorm.models import TiledLinear
from advnorm.recipe import RecipeError, override
from advnorm.runs import evaluate_run, load_trained
from advnorm.training import load_data, train

ENLARGED = ["data.size=16", "data.resample=nearest", "objective.name=standard"]
SGD = ["optimizer={name: sgd, lr: 0.05, momentum: 0.5, weight_decay: 0.1}"]


def test_a_run_with_tiles_is_the_run_without(tiny, tmp_path):
    runs = []
    for tile in (1, 2):
        changes = [*ENLARGED, *SGD, "precision=float64", f"model.options.tile={tile}"]
        recipe = override(tiny, changes)
        run = train(recipe, tmp_path / str(tile))
        model, _, _ = load_trained(
            run, recipe, load_data(recipe, root=None), weights="last", warnings=[]
        )
        assert not [layer for layer in model.modules() if isinstance(layer, TiledLinear)]
        evaluate_run(run, recipe)
        runs.append((model.state_dict(), [r.accuracy for r in run.results()]))
    (plain, expected), (tiled, accuracies) = runs
    # the first weights are parted in float32, as they are drawn
    torch.testing.assert_close(tiled, plain, rtol=1e-6, atol=1e-8)
    assert accuracies == expected


def test_tiles_want_sgd(tiny, tmp_path):
    recipe = override(tiny, [*ENLARGED, "optimizer.name=adam", "model.options.tile=2"])
    with pytest.raises(RecipeError, match="exact under sgd, not under adam"):
        train(recipe, tmp_path / "run")


@pytest.mark.parametrize("change", ["objective.name=pgd", "validation.robust=ibp"])
def test_tiles_are_not_for_attacked_images_nor_bounds(tiny, tmp_path, change):
    recipe = override(tiny, [*ENLARGED, *SGD, "model.options.tile=2", change])
    with pytest.raises(RecipeError, match=r"for objective\.name=standard"):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tiles_want_images_of_tiles(tiny, tmp_path):
    changes = [*SGD, "data.size=16", "model.options.tile=2", "objective.name=standard"]
    recipe = override(tiny, changes)
    with pytest.raises(ValueError, match=r"data\.resample=nearest"):
        train(recipe, tmp_path / "run")
