"""Training by PGD in L1 and L0 balls, and what does not know these norms."""

import pytest

from advnorm.recipe import override
from advnorm.threat import L0, L1
from advnorm.training import train
from advnorm.training.components import evaluation_threats


@pytest.mark.parametrize(("norm", "eps"), [("l1", 2), ("l0", 5)])
def test_a_network_trains_by_pgd_in_a_sparse_ball(tiny, tmp_path, norm, eps):
    ball = [f"threat.norm={norm}", f"threat.eps={eps}", "evaluation.threat.eps=[]"]
    recipe = override(tiny, [*ball, "epochs=1", "attack.steps=2"])
    run = train(recipe, tmp_path / norm, device="cpu")
    (epoch,) = run.epochs()
    assert epoch.eps == eps and epoch.validation_robust is not None
    halves = {"l1": [L1(1), L1(2)], "l0": [L0(3), L0(5)]}
    assert evaluation_threats(recipe) == halves[norm]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["threat.norm=l0", "threat.eps=2.5"], "number of features.*whole number"),
        (["threat.norm=l1", "objective.name=ibp"], "not in l1"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(tiny, tmp_path, changes, words):
    recipe = override(tiny, [*changes, "epochs=1"])
    with pytest.raises(ValueError, match=words):
        train(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
