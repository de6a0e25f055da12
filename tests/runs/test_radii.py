"""Radii of a run: kept in its records, tightened by other conditions, cached."""

import pytest

from advnorm.recipe import override
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import train

RADII = ["evaluation.radii=true", "evaluation.samples=6", "evaluation.conditions=[clean]"]


@pytest.fixture
def trained(tiny, tmp_path):
    return tiny, train(override(tiny, ["epochs=1"]), tmp_path / "run")


@pytest.mark.parametrize("norm, eps", [("linf", 0.1), ("l1", 2), ("l0", 3)])
def test_a_run_keeps_brackets_and_their_summary(trained, norm, eps):
    recipe, run = trained
    threat = [f"evaluation.threat.norm={norm}", f"evaluation.threat.eps=[{eps}]"]
    recipe = override(recipe, ["epochs=1", *RADII, *threat])
    result = evaluate_run(run, recipe)[-1]
    assert result.key == f"radii_{norm}_{eps:g}" and result.kind == "suite"
    verdicts = Run.open(run.path).verdicts(result.key)
    assert len(verdicts.radii) == 6 == result.radii.n
    assert Run.open(run.path).result(result.key).radii == result.radii
    for robust, (certified, broken) in zip(verdicts.robust, verdicts.radii, strict=True):
        assert broken is None or certified <= broken
        assert robust == (broken is None or broken > eps)
    again = evaluate_run(run, recipe)[-1]
    assert again.radii == result.radii
