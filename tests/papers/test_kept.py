"""Kept records are of the runs that the recipes of now make: none was changed since."""

from pathlib import Path

import pytest

from advnorm.papers import ARTEFACTS
from advnorm.papers.artefact import seeded
from advnorm.papers.work import name_of
from advnorm.recipe import Recipe
from advnorm.records import read_reproduction
from advnorm.train import load

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"
KEPT = {
    f"{path.parent.name}/{path.stem}": path
    for paper in sorted({name.partition("/")[0] for name in ARTEFACTS})
    for path in sorted((RESULTS / paper).glob("*.json"))
}


@pytest.fixture(scope="module")
def named():
    """Return the name of a recipe's run; each data set is read once."""
    digests: dict[str, str] = {}

    def of(recipe: Recipe) -> str:
        data = f"{recipe.data.model_dump_json()} {recipe.seed}"
        try:
            digests[data] = digests.get(data) or load(recipe, root=None).digest()
        except FileNotFoundError:
            pytest.skip(f"no {recipe.data.name} here")
        return name_of(recipe, digests[data])

    return of


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_record_is_of_the_runs_that_would_be_made_now(name, named):
    record = read_reproduction(KEPT[name])
    jobs = ARTEFACTS[record.artefact].jobs(record.scale)
    found = {
        job.row: named(seeded(job, 0).recipe) for job in jobs if job.row in record.runs
    }
    assert set(found) == set(record.runs)
    other = {row: run for row, run in found.items() if run not in record.runs[row]}
    assert not other, f"reproduce {record.artefact} again: these rows are other runs now"
