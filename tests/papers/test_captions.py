"""The list of artefacts is the list of captions."""

from advnorm.papers import ARTEFACTS, ILLUSTRATIONS
from advnorm.papers.captions import captions


def test_there_are_68_captions_and_4_show_nothing_measured():
    assert len(set(captions())) == 68
    assert len(ILLUSTRATIONS) == 4


def test_nothing_is_entered_that_has_no_caption():
    entered = {*ARTEFACTS, *ILLUSTRATIONS}
    assert entered <= set(captions())
    assert not set(ARTEFACTS) & set(ILLUSTRATIONS)
