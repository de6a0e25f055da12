"""The first page of docs/results says what the records say, or is refused."""

import re
import sys

import pytest
from page_blocks import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import result_summary
import results

from advnorm.papers import ARTEFACTS
from advnorm.papers.artefact import CAPTION_COUNTS
from advnorm.papers.reproduce import with_claims


@pytest.fixture(scope="module")
def records():
    """Return the kept records, judged by today's claims."""
    return {
        name: [with_claims(ARTEFACTS[name], record) for record in each]
        for name, each in results.found().items()
    }


def test_every_paper_has_five_sentences_on_the_first_page(records):
    page = result_summary.summary_page(records)
    assert "{" not in page
    sections = re.split("^## ", page, flags=re.MULTILINE)[1:]
    papers = [section.split()[0] for section in sections]
    assert papers == [*CAPTION_COUNTS]
    for section in sections:
        assert "**Holds**" in section and "**Open**" in section
    assert (ROOT / "docs/results/README.md").read_text().count(page) == 1


def test_a_sentence_that_a_record_contradicts_is_refused(records):
    name = "sitawarin2021/figure5"
    (record,) = records[name]
    values = {key: dict(cells) for key, cells in record.rows.items()}
    gap, cell = values["PGD - AA"], values["PGD - AA"]["0.5"]
    gap["0.5"] = cell.model_copy(update={"values": tuple(-v for v in cell.values)})
    other = with_claims(ARTEFACTS[name], record.model_copy(update={"rows": values}))
    with pytest.raises(ValueError, match="the gap from PGD to AutoAttack grows"):
        result_summary.summary_page(records | {name: [other]})


def test_a_paper_without_records_is_counted_as_not_measured(records):
    others = {name: each for name, each in records.items() if "xie2020" not in name}
    page = result_summary.summary_page(others)
    assert "## xie2020\n\nNone of its 13 tables and figures is measured." in page
