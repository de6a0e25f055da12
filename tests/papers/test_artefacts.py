"""Every artefact at every scale: recipes that can be run, claims about what is measured."""

from dataclasses import replace

import pytest

from advnorm.papers import ARTEFACTS, Place, reproduce
from advnorm.records import SCALES, Measured
from advnorm.train import check, questions

EVERY = [(name, scale) for name in ARTEFACTS for scale in SCALES]


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_recipes_and_questions_of_its_jobs_are_known(name, scale):
    for job in ARTEFACTS[name].jobs(scale):
        check(job.recipe)
        for question, changes in job.questions.items():
            questions([question], [f"{question}.{change}" for change in changes])


@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_claims_and_published_numbers_are_about_what_is_measured(name):
    artefact = ARTEFACTS[name]
    jobs = artefact.jobs("full")
    numbers: dict[str, dict[str, Measured]] = {}
    for job in jobs:
        cells = dict.fromkeys(job.numbers, Measured(values=(1.0, 2.0)))
        numbers.setdefault(job.row, {}).update(cells)
    for claim in artefact.claims:
        assert "not measured" not in claim.judge(numbers, "full").why, claim.text
    assert set(artefact.published) <= set(numbers)
    assert not artefact.relative_to or artefact.relative_to in numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_each_runs_at_smoke(tmp_path, name):
    record = reproduce(name, Place(tmp_path))
    assert not record.failed
    assert set(record.rows) == {job.row for job in ARTEFACTS[name].jobs("smoke")}


def test_a_claim_about_another_row_would_be_seen():
    artefact = ARTEFACTS["galloway2019/table1"]
    fewer = replace(artefact, jobs=lambda scale: artefact.jobs(scale)[1:])
    kept = {
        job.row: dict.fromkeys(job.numbers, Measured(values=(1.0, 2.0)))
        for job in fewer.jobs("full")
    }
    told = [claim.judge(kept, "full").why for claim in fewer.claims]
    assert any("not measured" in why for why in told)
