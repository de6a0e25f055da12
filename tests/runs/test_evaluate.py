"""How a run is evaluated: another norm, options of attacks, curves, stops in between."""

import numpy as np
import pytest
import torch

from advnorm.progress import Quiet
from advnorm.recipe import RecipeError, override
from advnorm.records import Run
from advnorm.runs import condition as condition_module
from advnorm.runs import evaluate_run
from advnorm.training import checkpoints, train


class Lines(Quiet):
    """Keep the lines of the progress."""

    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)


@pytest.fixture
def few(tiny, tmp_path):
    recipe = override(tiny, ["epochs=1", "evaluation.conditions=[clean, pgd-3]"])
    recipe = override(recipe, ["evaluation.threat.eps=[0.1]"])
    return recipe, train(recipe, tmp_path / "run")


@pytest.fixture
def judgements(monkeypatch):
    """Count the samples that are judged, by cell."""
    seen, original = [], condition_module.run_condition

    def recording(model, batches, condition, **settings):
        batches = list(batches)
        seen.append((condition.name, sum(len(batch.samples) for batch in batches)))
        return original(model, batches, condition, **settings)

    monkeypatch.setattr(condition_module, "run_condition", recording)
    return seen


def test_a_look_at_a_few_samples_loses_no_verdict(few, judgements):
    recipe, run = few
    whole, before = evaluate_run(run, recipe), {}
    for result in whole:
        before[result.key] = run.verdicts(result.key)
    judgements.clear()
    lines = Lines()
    some = evaluate_run(run, override(recipe, ["evaluation.samples=15"]), progress=lines)
    assert not judgements and [result.accuracy.n for result in some] == [15, 15]
    for result, of_all in zip(some, whole, strict=True):
        verdicts = run.verdicts(result.key)
        assert verdicts == before[result.key] and len(verdicts.samples) == 40
        assert result.accuracy.correct == sum(verdicts.robust[:15])
        assert run.result(result.key) == result and result.seconds >= of_all.seconds
    assert any("verdicts on all 40 stay" in line for line in lines.lines)
    again = evaluate_run(run, recipe)
    assert not judgements
    for one, other in zip(again, whole, strict=True):
        assert one.model_copy(update={"seconds": other.seconds}) == other


def test_more_samples_go_on_from_fewer(few, judgements, tmp_path):
    recipe, run = few
    evaluate_run(run, override(recipe, ["evaluation.samples=15"]))
    judgements.clear()
    results = evaluate_run(run, recipe)
    assert judgements == [("clean", 25), ("pgd-3", 25)]
    other = train(recipe, tmp_path / "other")
    for one, alone in zip(results, evaluate_run(other, recipe), strict=True):
        assert one.accuracy == alone.accuracy and one.accuracy.n == 40
        assert run.verdicts(one.key) == other.verdicts(alone.key)


def test_verdicts_that_were_removed_are_judged_again(few, judgements):
    recipe, run = few
    evaluate_run(run, recipe)
    before = run.verdicts("clean")
    (run.path / "verdicts" / "clean.json").unlink()
    judgements.clear()
    evaluate_run(run, recipe)
    assert judgements == [("clean", 40)] and run.verdicts("clean") == before


def test_fewer_samples_of_other_settings_say_what_they_replace(few):
    recipe, run = few
    _, attacked = evaluate_run(run, recipe)
    lines = Lines()
    changes = ["evaluation.samples=15", "evaluation.step_ratio=1", "seed=1"]
    evaluate_run(run, override(recipe, changes), progress=lines)
    assert (
        f"{attacked.key}: replaces {attacked.accuracy}, of other settings or weights"
        in (lines.lines)
    )
    assert run.result(attacked.key).accuracy.n == 15


def test_a_look_at_a_few_samples_of_both_branches(tiny, tmp_path):
    norm = ["norm.name=mixture", "objective.name=mixed", "evaluation.branch=worst"]
    recipe = override(tiny, [*norm, "epochs=1", "evaluation.conditions=[fgsm]"])
    run = train(recipe, tmp_path / "run")
    whole = evaluate_run(run, recipe)
    for result in evaluate_run(run, override(recipe, ["evaluation.samples=9"])):
        both = [
            run.verdicts(f"{result.key.removesuffix('worst')}{b}")
            for b in ("clean", "adversarial")
        ]
        assert all(len(verdicts.samples) == 40 for verdicts in both)
        stand = [all(pair) for pair in zip(*(v.robust[:9] for v in both), strict=True)]
        assert result.accuracy.n == 9 and result.accuracy.correct == sum(stand)
    assert [r.accuracy for r in evaluate_run(run, recipe)] == [r.accuracy for r in whole]


def test_a_run_is_evaluated_in_another_norm_and_with_options(tiny, tmp_path):
    run = train(tiny, tmp_path / "run")
    attacks = "[pgd-4+random+step=1/16, pgd-1..4]"
    changes = ["evaluation.threat.norm=l2", "evaluation.threat.eps=[0.5]"]
    recipe = override(tiny, [f"evaluation.conditions={attacks}", *changes])
    one, curve = evaluate_run(run, recipe)
    assert one.threat.norm == curve.threat.norm == "l2" and one.threat.eps == 0.5
    assert one.settings["step_size"] == 1 / 16 and one.settings["target"] == "random"
    assert list(curve.curve) == [1, 2, 4] and curve.curve[4] == curve.accuracy
    assert Run.open(run.path).result(curve.key) == curve
    assert curve.curve == run.verdicts(curve.key).accuracies([1, 2, 4])
    with pytest.raises(RecipeError, match=r"give evaluation\.threat\.eps too"):
        evaluate_run(run, override(recipe, ["evaluation.threat.eps=[]"]))


def test_radius_0_is_the_clean_accuracy_also_of_a_run(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    changes = [
        "evaluation.threat.eps=[0, 0.1]",
        "evaluation.conditions=[clean, pgd-3, pgd-1..2]",
    ]
    clean, none, some, zero, _ = evaluate_run(run, override(tiny, changes))
    assert none.threat.eps == zero.threat.eps == 0 and some.threat.eps == 0.1
    assert none.accuracy == zero.accuracy == clean.accuracy
    assert zero.curve == {1: clean.accuracy, 2: clean.accuracy}


def test_an_edited_recipe_is_named_where_the_weights_do_not_fit(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    wider = override(tiny, ["epochs=1", "model.options.width=9"])
    with pytest.raises(ValueError, match=r"recipe\.yaml is not the recipe"):
        evaluate_run(run, wider)


def test_metrics_that_are_no_text_are_named(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    (run.path / "metrics.jsonl").write_bytes(b"\x9d\xff")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
        run.epochs()


def newest(run, kind="state"):
    return checkpoints.load(run.checkpoints, kind, warnings=[])


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    from advnorm.recipe import Recipe

    recipe = override(
        Recipe(),
        [
            "data.train=96",
            "data.test=40",
            "model.options={depth: 1, width: 8}",
            "threat.eps=0.1",
            "attack.steps=2",
            "epochs=2",
            "validation={samples: 30, steps: 2}",
            "evaluation={conditions: [clean, pgd-3], batch_size: 16}",
        ],
    )
    return recipe, train(recipe, tmp_path_factory.mktemp("done") / "run")


def test_by_default_half_the_radius_and_the_radius(done):
    recipe, run = done
    assert [r.key for r in evaluate_run(run, recipe)] == [
        "clean",
        "pgd-3_linf_0.05",
        "pgd-3_linf_0.1",
    ]


def test_best_and_last_weights_are_what_they_say(done):
    recipe, run = done
    for kind, prefix in (("best", "best-"), ("last", "state-")):
        (clean, *_) = evaluate_run(run, override(recipe, [f"evaluation.weights={kind}"]))
        expected = newest(run, "best" if kind == "best" else "state")
        assert clean.weights == f"{expected.path.stem} sha256:{expected.digest}"
        assert clean.weights.startswith(prefix)


@pytest.mark.parametrize(
    "change", ["weights=last", "samples=20", "step_ratio=1.0", "data=npz", "seed", "none"]
)
def test_whatever_decides_a_verdict_makes_it_anew_and_nothing_else_does(
    done, monkeypatch, tmp_path, change
):
    recipe, run = done
    evaluate_run(run, recipe)
    tested = []
    original = condition_module.run_condition
    monkeypatch.setattr(
        condition_module,
        "run_condition",
        lambda *a, **k: (tested.append(a[2].key), original(*a, **k))[1],
    )
    if change == "seed":
        changed = override(recipe, ["seed=1"])
    elif change == "data=npz":
        rng = np.random.default_rng(0)
        arrays = {
            f"x_{p}": rng.random((40, 1, 8, 8)).astype(np.float32)
            for p in ("train", "test")
        }
        labels = {f"y_{p}": np.arange(40) % 10 for p in ("train", "test")}
        np.savez(tmp_path / "other.npz", **arrays, **labels)
        changed = override(recipe, [f"evaluation.data=npz:{tmp_path / 'other.npz'}"])
        changed = override(changed, ["data.train=null", "data.test=null"])
    elif change == "none":
        changed = override(recipe, ["evaluation.batch_size=7"])
    else:
        changed = override(recipe, [f"evaluation.{change}"])
    results = evaluate_run(run, changed)
    expected = {"none": 0, "samples=20": 0, "step_ratio=1.0": 2}.get(change, 3)
    assert len(tested) == expected, tested
    if change == "data=npz":
        assert all("~npz-" in r.key and r.other for r in results)
    evaluate_run(run, recipe)


def test_a_result_of_old_settings_is_not_taken_for_the_new(done, monkeypatch):
    """A kill between the last verdicts and the result leaves an old result behind."""
    recipe, run = done
    evaluate_run(run, recipe)
    changed = override(recipe, ["evaluation.samples=20", "evaluation.conditions=[clean]"])
    monkeypatch.setattr(Run, "write_result", lambda self, result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate_run(run, changed)
    monkeypatch.undo()
    (clean,) = evaluate_run(run, changed)
    assert clean.accuracy.n == 20 and run.result("clean").accuracy.n == 20
    evaluate_run(run, recipe)


def test_statistics_that_are_not_numbers_are_refused_before_an_attack(done, tmp_path):
    recipe, run = done
    checkpoint = newest(run, "best")
    spoilt = {k: v.clone() for k, v in checkpoint.tensors.items()}
    name = next(k for k in spoilt if k.endswith("running_var"))
    spoilt[name][0] = torch.nan
    other = Run(tmp_path / "run")
    other.checkpoints.mkdir(parents=True)
    checkpoints.save(other.checkpoints, "best", 1, spoilt, {})
    with pytest.raises(ValueError, match="NaN or infinite"):
        evaluate_run(other, recipe)
