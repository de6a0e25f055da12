"""What artefacts cost, and what is kept of them, is what the artefacts and records say."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advnorm.listing import KeptRecord, kept_records, listing
from advnorm.papers import ARTEFACTS, Artefact, Job
from advnorm.papers.cost import Cost, cost, recorded_costs
from advnorm.recipe import EvaluationSpec, EvaluationThreatSpec, Recipe, override
from advnorm.records import SCALES
from advnorm.runs.plan import plan

ROOT = Path(__file__).parent.parent.parent
LINEAR = override(
    Recipe(name="linear"),
    [
        "data={name: mnist, train: 100, test: 50}",
        "model={name: linear, standardize: none}",
        "norm.name=none",
        "objective.name=standard",
        "batch_size=10",
        "epochs=3",
        "evaluation={conditions: [clean, pgd-10], threat: {eps: [0.1, 0.2]}}",
    ],
)

PRODUCT = 2 * 784 * 10


def conditions(*names):
    return EvaluationSpec(conditions=names)


def artefact(*jobs):
    return Artefact("here/table1", "", lambda scale: jobs, {})


def test_operations_are_those_of_a_linear_model_by_hand():
    """A product of d x k weights is 2 d k operations; its weights' gradient as many."""
    total = cost(artefact(Job("a", LINEAR, {})), "full")
    training = 3 * 100 * 2 * PRODUCT  # forward, and the gradient of the weights
    attacks = 50 * (1 + 2 * 10 * 3) * PRODUCT
    assert total.runs == 1 and total.operations == training + attacks


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (conditions("clean"), 50),  # a pass a test image
        (EvaluationSpec(samples=20), 20 * 61),
        (EvaluationSpec(samples=80), 50 * 61),  # no more than there are
        # the two radii of the default
        (EvaluationSpec(threat=EvaluationThreatSpec(eps=())), 50 * 61),
        (conditions("pgd-10x3"), 50 * 2 * 90),
        (conditions("noise-1", "clean"), 50 * 2),  # no radius
        (conditions("corruptions"), 50 * 95),  # 19 kinds at 5 severities
    ],
)
def test_passes_of_an_evaluation_by_hand(change, passes):
    job = Job("a", LINEAR, {}, evaluations=(change,))
    total = cost(artefact(job), "full").operations - plan(LINEAR).epoch * 3
    assert total == passes * PRODUCT
    twice = Job("a", LINEAR, {}, evaluations=(change, change))
    assert cost(artefact(twice), "full").operations - plan(LINEAR).epoch * 3 == 2 * total


@pytest.mark.parametrize(
    ("options", "samples", "passes"),
    [
        ({}, 20, 20 * (3 + 2)),  # one step, and both kinds of images are classified
        ({"steps": 7}, 20, 20 * (7 * 3 + 2)),
        ({"steps": 7}, 80, 50 * (7 * 3 + 2)),
    ],
)
def test_the_attack_of_a_question_counts(options, samples, passes):
    clean = Job("a", LINEAR, {}, evaluations=(conditions("clean"),))
    diagnosed = replace(clean, questions={"attacked_loss": options}, samples=samples)
    total = cost(artefact(diagnosed), "full").operations
    assert total - cost(artefact(clean), "full").operations == passes * PRODUCT


@pytest.mark.parametrize(
    ("data", "images", "pixels"), [("mnist", 10_000, 784), ("digits", 360, 64)]
)
def test_a_set_without_a_test_size_is_tested_whole(data, images, pixels):
    changes = [f"data={{name: {data}, train: 100}}", "evaluation={conditions: [clean]}"]
    whole = override(LINEAR, ["data.test=null", *changes])
    total = cost(artefact(Job("a", whole, {})), "full").operations
    assert total - plan(whole).epoch * 3 == images * 2 * pixels * 10


def test_costs_in_words():
    assert str(Cost(runs=1, operations=1e12)) == (
        "1 run, 1.0e+12 operations, under a minute on one a100"
    )
    hour = Cost(runs=2, operations=1e12 / Cost(runs=2, operations=1e12).hours)
    assert str(hour).endswith(" operations, 1 h on one a100")
    assert str(hour).startswith("2 runs, ")


def test_a_shared_run_costs_its_training_once():
    one = cost(artefact(Job("a", LINEAR, {})), "full")
    two = cost(artefact(Job("a", LINEAR, {}), Job("b", LINEAR, {})), "full")
    trained = plan(LINEAR).epoch * 3
    assert two.runs == 1 and two.operations == 2 * one.operations - trained
    other = cost(
        artefact(Job("a", LINEAR, {}), Job("b", override(LINEAR, ["seed=1"]), {})), "full"
    )
    assert other.runs == 2 and other.operations == 2 * one.operations


def test_every_artefact_has_its_cost():
    kept = recorded_costs()
    assert set(kept) == set(ARTEFACTS)
    for name, scales in kept.items():
        assert set(scales) == set(SCALES)
        jobs = {scale: ARTEFACTS[name].jobs(scale) for scale in SCALES}
        for scale, one in scales.items():
            assert 1 <= one.runs <= len(jobs[scale]) and one.operations > 0


@pytest.mark.parametrize("name", ["galloway2019/table1", "sridhar2021/table6"])
def test_kept_costs_are_what_would_be_counted_now(name):
    assert recorded_costs()[name]["smoke"] == cost(ARTEFACTS[name], "smoke")


def test_the_list_says_what_was_measured():
    text = listing("papers")
    for name in ARTEFACTS:
        assert f"  {name}: {ARTEFACTS[name].title}\n" in text
    assert text.count("not measured") == len(ARTEFACTS) - len(kept_records())


def test_what_is_kept_is_counted_in_words():
    verdicts = ("holds", "does not hold", "holds")
    kept = KeptRecord(scale="full", seeds=3, rows="", minutes=1.5, verdicts=verdicts)
    assert str(kept) == "full, 3 seeds, 1.5 minutes: 2 hold, 1 does not hold"
    part = kept.model_copy(update={"verdicts": (), "rows": "2 of 6 rows"})
    assert str(part) == "full, 3 seeds, 2 of 6 rows, 1.5 minutes"


@pytest.mark.parametrize("script", ["results.py", "norm_study.py"])
def test_the_tables_in_docs_are_those_of_the_records(script):
    command = [sys.executable, f"benchmarks/{script}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
