"""The list of artefacts is the list of captions."""

import os
import re
from pathlib import Path

import pytest

from advnorm.papers import ARTEFACTS, ILLUSTRATIONS
from advnorm.papers.artefact import CAPTION_COUNTS, captions


def test_there_are_68_captions_and_4_show_nothing_measured():
    assert len(set(captions())) == 68
    assert len(ILLUSTRATIONS) == 4


def test_every_caption_is_entered_and_nothing_else():
    assert {*ARTEFACTS, *ILLUSTRATIONS} == set(captions())
    assert len(list(ARTEFACTS)) == 64
    assert not set(ARTEFACTS) & set(ILLUSTRATIONS)


@pytest.mark.parametrize("paper", CAPTION_COUNTS)
def test_they_are_those_of_the_papers_texts(paper):
    """Runs where ADVNORM_PAPERS names a folder with PAPER.txt of each."""
    folder = os.environ.get("ADVNORM_PAPERS")
    if not folder:
        pytest.skip("ADVNORM_PAPERS is not set")
    text = (Path(folder) / f"{paper}.txt").read_text()
    matches = re.findall(r"^\s*(Figure|Table)\s+(\d+)\s*[:.]", text, flags=re.MULTILINE)
    named = {f"{paper}/{kind.lower()}{number}" for kind, number in matches}
    assert named == {name for name in captions() if name.startswith(f"{paper}/")}
