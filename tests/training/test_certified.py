"""Whole runs of certified training, and what recipes of it are refused."""

import pytest
import torch

from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.recipe import RecipeError, override
from advnorm.runs import load_trained
from advnorm.training import load_data, train
from advnorm.training.build import build_experiment
from advnorm.training.components import weight_schedules

CERTIFIED = [
    "objective={name: ibp, kappa: 1.0}",
    "objective.kappa_schedule={kind: ramp, first: 1, last: 3, start: 1, stop: 0.5}",
    "threat.schedule={kind: ramp, first: 1, last: 3}",
    "validation.robust=ibp",
    "validation.eps=0.05",
]


def test_eps_and_kappa_follow_their_schedules(tiny, tmp_path):
    recipe = override(tiny, [*CERTIFIED, "epochs=5"])
    assert [weight_schedules(recipe)["kappa"](t) for t in (0, 1, 2, 3, 4)] == [
        1.0,
        1.0,
        0.75,
        0.5,
        0.5,
    ]
    lines = train(recipe, tmp_path / "run").epochs()
    assert set(lines[0].parts) == {"clean"} and lines[0].eps == 0
    assert all(set(line.parts) == {"clean", "certified"} for line in lines[2:])
    assert [round(line.eps, 3) for line in lines[2:]] == [0.083, 0.1, 0.1]


def test_the_best_checkpoint_is_chosen_by_verified_accuracy(tiny, tmp_path):
    recipe = override(tiny, CERTIFIED)
    run = train(recipe, tmp_path / "run")
    best = [line for line in run.epochs() if line.best][-1]
    data = load_data(recipe, root=None)
    model, _, _ = load_trained(run, recipe, data, weights="best", warnings=[])
    order = torch.arange(min(30, len(data.validation)))
    images, labels, _ = next(
        data.validation.batches(order, batch_size=30, device=torch.device("cpu"))
    )
    threat = recipe.threat.build().with_eps(0.05)
    with torch.no_grad():
        margins, _ = ibp_margins(trace(model.eval()), input_box(images, threat), labels)
    verified = margins.scatter(1, labels[:, None], torch.inf).amin(1) > 0
    assert best.validation_robust.correct == verified.sum()
    assert best.validation_robust.correct <= best.validation_clean.correct


def test_certified_training_verifies_digits_that_clean_training_does_not(tiny, tmp_path):
    longer = ["epochs=12", "data.train=800", "optimizer.name=adam", "optimizer.lr=0.01"]
    spread = ["validation={robust: ibp, eps: 0.05, samples: 100}"]
    certified = override(tiny, [*CERTIFIED, *longer, *spread])
    plain = override(tiny, ["objective.name=standard", *longer, *spread])
    rates = [
        train(recipe, tmp_path / name).epochs()[-1].validation_robust.fraction
        for name, recipe in (("ibp", certified), ("plain", plain))
    ]
    assert rates[0] > rates[1] + 0.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["compile=true"], "nothing to compile"),
        (["data.mixup=0.2"], "mixed labels"),
        (["data.label_smoothing=0.1"], "mixed labels"),
        (["norm.name=mixture"], "mixture norm separates: set norm.name=batch"),
        (["objective.kappa_schedule={kind: ramp, last: 2, stop: 3}"], "above 1"),
        (["objective.gamma=0.5"], "gamma"),
        (["validation.eps=3"], "larger than the whole range"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(tiny, changes, words):
    with pytest.raises(RecipeError, match=words):
        build_experiment(override(tiny, [*CERTIFIED, *changes]), root=None, device="cpu")
