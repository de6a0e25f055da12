"""Every artefact at every scale: recipes that can be run, claims about what is measured."""

from dataclasses import replace
from datetime import date
from itertools import product

import pytest

from advnorm.data import expand_name
from advnorm.diagnosis.registry import validate_options
from advnorm.evaluation.conditions import parse_conditions
from advnorm.evaluation.perturbed_statistics import Perturbation
from advnorm.papers import ARTEFACTS, Workspace, reproduce
from advnorm.papers.artefact import evaluation_recipes
from advnorm.papers.numbers import (
    AnswerNumber,
    DifferenceNumber,
    EpochNumber,
    MeanNumber,
    ResultNumber,
    TrainingMinutes,
    TransferNumber,
)
from advnorm.records import SCALES, Epoch, Measured, ThreatRecord, result_key
from advnorm.training import check_recipe
from advnorm.training.components import evaluation_threats

EVERY = [(name, scale) for name in ARTEFACTS for scale in SCALES]


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_recipes_and_questions_of_its_jobs_are_known(name, scale):
    for job in ARTEFACTS[name].jobs(scale):
        check_recipe(job.recipe)
        for question, options in job.questions.items():
            validate_options(question, options)


def result_steps(job):
    """Return the names of the results that a job's evaluations write, with their curves."""
    steps = {}
    for recipe in evaluation_recipes(job):
        spec = recipe.evaluation
        worst = ["clean", "adversarial"] if spec.branch == "worst" else []
        branches = [spec.branch, *worst] if recipe.norm.name == "mixture" else [None]
        sets = [None] if spec.data is None else expand_name(spec.data)
        settings = spec.conditions, evaluation_threats(recipe), recipe.threat.bounds
        for condition in parse_conditions(*settings, shape=(3, 32, 32)):
            for branch, data in product(branches, sets):
                key = result_key(condition.name, condition.threat_record, branch, data)
                steps[key] = condition.counts
    spec = job.recipe.perturbation
    draws = range(spec.draws)
    for direction, part, radius, draw in product(
        spec.directions, spec.parts, spec.radii, draws
    ):
        batch = spec.statistics == "batch"
        perturbation = Perturbation(
            direction, part, batch=batch, groups=spec.groups, draw=draw
        )
        key = result_key(perturbation.name, ThreatRecord(norm=part, eps=radius))
        steps |= {key: ()} if job.perturbed else {}
    return steps


def simple_numbers(number):
    """Yield the numbers that a mean or a difference is made of, else the number itself."""
    match number:
        case MeanNumber(numbers):
            for each in numbers:
                yield from simple_numbers(each)
        case DifferenceNumber(minuend, subtrahend):
            yield from simple_numbers(minuend)
            yield from simple_numbers(subtrahend)
        case _:
            yield number


def is_written(number, job, results):
    """Tell whether a job writes what a number is read from."""
    monitored = {f"{question}_over_training" for question in job.recipe.monitor.questions}
    match number:
        case TrainingMinutes():
            return True
        case EpochNumber(field):
            return field in Epoch.model_fields
        case TransferNumber(target):
            return target in job.targets
        case AnswerNumber(question):
            return question in {*job.questions, *monitored}
        case ResultNumber(steps=None):
            return number.key in results
        case ResultNumber(steps=steps):
            return steps in results[number.key]
    raise AssertionError(number)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_its_numbers_name_what_its_jobs_write(name, scale):
    for job in ARTEFACTS[name].jobs(scale):
        results = result_steps(job)
        for column in job.numbers.values():
            for number in simple_numbers(column):
                assert is_written(number, job, results), number


@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_claims_and_published_numbers_are_about_what_is_measured(name):
    artefact = ARTEFACTS[name]
    numbers: dict[str, dict[str, dict[str, Measured]]] = {"reduced": {}, "full": {}}
    for scale, rows in numbers.items():
        for job in artefact.jobs(scale):
            cells = dict.fromkeys(job.numbers, Measured(values=(1.0, 2.0)))
            rows.setdefault(job.row, {}).update(cells)
    for claim in artefact.claims:
        for part in claim.check_parts(numbers[claim.scales[-1]]):
            assert "not measured" not in part.why, claim.text
    assert set(artefact.published) <= set(numbers["full"])
    assert not artefact.relative_to or artefact.relative_to in numbers["full"]


@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_no_claim_is_refuted_by_the_papers_own_numbers(name):
    artefact = ARTEFACTS[name]
    numbers = {
        row: {column: Measured(values=(one.value,) * 3) for column, one in cells.items()}
        for row, cells in artefact.published.items()
    }
    for claim in artefact.claims:
        if claim.scales == ("reduced",) and "on a small data set" in claim.text:
            continue  # what the paper says of data sets that its numbers are not about
        for part in claim.check_parts(numbers):
            assert part.verdict == "holds" or "not measured" in part.why, claim.text


def test_the_text_of_a_claim_is_its_own():
    for name in ARTEFACTS:
        texts = [claim.text for claim in ARTEFACTS[name].claims]
        assert len(set(texts)) == len(texts)


def runs_at_smoke(folder, name):
    record = reproduce(name, Workspace(folder))
    assert not record.failed
    assert set(record.rows) == {job.row for job in ARTEFACTS[name].jobs("smoke")}
    cells = [cell for row in record.rows.values() for cell in row.values()]
    assert cells and all(cell.values for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_each_runs_at_smoke(tmp_path, name):
    runs_at_smoke(tmp_path, name)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("place", range(3))
def test_three_others_every_day_run_at_smoke(tmp_path, place):
    """Continuous integration takes turns: all of them within a month."""
    names = list(ARTEFACTS)
    runs_at_smoke(tmp_path, names[(3 * date.today().toordinal() + place) % len(names)])


def test_a_claim_about_another_row_would_be_seen():
    artefact = ARTEFACTS["galloway2019/table1"]
    fewer = replace(artefact, jobs=lambda scale: artefact.jobs(scale)[1:])
    kept = {
        job.row: dict.fromkeys(job.numbers, Measured(values=(1.0, 2.0)))
        for job in fewer.jobs("full")
    }
    verdicts = [part for claim in fewer.claims for part in claim.check_parts(kept)]
    assert any("not measured" in part.why for part in verdicts)
