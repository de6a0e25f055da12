"""Every artefact at every scale: recipes that can be run, claims about what is measured."""

from dataclasses import replace
from datetime import date

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


@pytest.mark.parametrize("name", list(ARTEFACTS))
def test_no_claim_is_refuted_by_the_papers_own_numbers(name):
    artefact = ARTEFACTS[name]
    numbers = {
        row: {column: Measured(values=(one.value,) * 2) for column, one in cells.items()}
        for row, cells in artefact.published.items()
    }
    for claim in artefact.claims:
        told = claim.judge(numbers, claim.scales[-1])
        assert told.verdict == "holds" or "not measured" in told.why, claim.text


def test_the_text_of_a_claim_is_its_own():
    for name in ARTEFACTS:
        texts = [claim.text for claim in ARTEFACTS[name].claims]
        assert len(set(texts)) == len(texts)


def runs_at_smoke(folder, name):
    record = reproduce(name, Place(folder))
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
    told = [claim.judge(kept, "full").why for claim in fewer.claims]
    assert any("not measured" in why for why in told)
