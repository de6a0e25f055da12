"""Kept records are of the runs that the recipes of now make: none was changed since."""

from pathlib import Path

import pytest

from advnorm.papers import ARTEFACTS
from advnorm.papers.artefact import seeded
from advnorm.papers.ledger import Ledger
from advnorm.papers.reproduce import gather
from advnorm.recipe import Recipe
from advnorm.records import read_reproduction
from advnorm.studies.trained_runs import run_name
from advnorm.training import load_data

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"
KEPT = {
    f"{path.parent.name}/{path.stem}": path
    for paper in sorted({name.partition("/")[0] for name in ARTEFACTS})
    for path in sorted((RESULTS / paper).glob("*.json"))
}


@pytest.fixture(scope="module")
def name_run():
    """Return the name of a recipe's run; each data set is read once."""
    digests: dict[str, str] = {}

    def of(recipe: Recipe) -> str:
        data = f"{recipe.data.model_dump_json()} {recipe.seed}"
        try:
            digests[data] = digests.get(data) or load_data(recipe, root=None).digest()
        except FileNotFoundError:
            pytest.skip(f"no {recipe.data.name} here")
        return run_name(recipe, digests[data])

    return of


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_record_says_no_more_than_its_lines(name):
    """Records of before the lines told how many samples there were have no n."""
    record = read_reproduction(KEPT[name])
    if record.entries:
        entry = ARTEFACTS[record.artefact]
        again = gather(entry, record.scale, record.seeds, record.entries, record.failed)
        assert again.rows == record.rows
    else:
        cells = [cell for row in record.rows.values() for cell in row.values()]
        assert {cell.n for cell in cells} == {None}


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_entry_is_of_a_job_and_of_defaults_of_now(name):
    record = read_reproduction(KEPT[name])
    ledger = Ledger(KEPT[name], ARTEFACTS[record.artefact], record.scale, None)
    assert {entry.run for entry in ledger.entries.values()} == {
        entry.run for entry in record.entries
    }
    assert len(ledger.entries) == len(record.entries)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_record_is_of_the_runs_that_would_be_made_now(name, name_run):
    record = read_reproduction(KEPT[name])
    jobs = ARTEFACTS[record.artefact].jobs(record.scale)
    runs = {
        job.row: name_run(seeded(job, 0).recipe) for job in jobs if job.row in record.runs
    }
    assert set(runs) == set(record.runs)
    other = {row: run for row, run in runs.items() if run not in record.runs[row]}
    assert not other, f"reproduce {record.artefact} again: these rows are other runs now"
