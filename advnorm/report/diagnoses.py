"""Why a choice works or fails: each question with the runs that have its answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from advnorm.records import Diagnosis, Panel, Picture
from advnorm.report import diagnosis_panels, figures
from advnorm.report.completion_marks import unfinished_diagnoses
from advnorm.report.diagnosis_panels import StyledPanel
from advnorm.report.example_images import png
from advnorm.report.groups import LoadedRun, RunGroup
from advnorm.report.styles import OTHER_STYLE, GroupStyle

MOST_NUMBERS = 40
"""Numbers of one question in the table; beyond these they are in the record alone."""
MOST_COLUMNS = 7
"""Columns of a table; of more numbers each has a row, and each group a column."""
MOST_PICTURES = 40
"""Pictures of one run in one panel."""
EVERY = "every run"
"""Names what is the same for all groups, because nothing of the model is in it."""


@dataclass(frozen=True)
class GroupAnswers:
    """A group, and what its runs answered: one diagnosis a seed."""

    label: str
    style: GroupStyle
    runs: tuple[LoadedRun, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def family(self) -> str:
        """What the group is beside its norm: runs of one family share axes."""
        return self.label.partition(" · ")[2]

    @property
    def unfinished(self) -> str:
        """How far the runs were, where their training was not finished."""
        return unfinished_diagnoses(self.diagnoses)

    @property
    def named(self) -> str:
        """The group, with that."""
        return f"{self.label} ({self.unfinished})" if self.unfinished else self.label

    def cells(self, names: Sequence[str]) -> list[str]:
        """Return each number, over seeds its mean ± standard error."""
        return [
            _cell([d.numbers[n] for d in self.diagnoses if n in d.numbers]) for n in names
        ]


@dataclass(frozen=True)
class Gallery:
    """Pictures of several groups under one title."""

    title: str
    strips: tuple[tuple[str, GroupStyle, tuple[tuple[str, str], ...]], ...]
    """Label, style, and the pictures: address and caption each."""

    @property
    def single(self) -> bool:
        """Whether each group has one picture: they are drawn larger, side by side."""
        return all(len(pictures) == 1 for *_, pictures in self.strips)


@dataclass(frozen=True)
class QuestionSection:
    """One question: how to read it, its numbers, its diagnosis_panels."""

    question: str
    source: str
    reading: str
    settings: str
    numbers: tuple[str, ...]
    answers: tuple[GroupAnswers, ...]
    panels: tuple[figures.SvgPanel, ...]
    galleries: tuple[Gallery, ...]

    @property
    def title(self) -> str:
        """The question in words."""
        text = self.question.replace("_", " ").capitalize()
        return text.replace("Pca", "PCA").replace("pca", "PCA")

    @property
    def tall(self) -> bool:
        """Whether the numbers are rows, since there are too many for columns."""
        return len(self.numbers) > MOST_COLUMNS


def topics(
    groups: Sequence[RunGroup], styles: figures.GroupStyles, prefix: str
) -> list[QuestionSection]:
    """Return every question that a run has the answer of; those over training first."""
    shown = [group for group in groups if styles[group.label] is not OTHER_STYLE]
    found = dict.fromkeys(q for g in shown for run in g.one_per_seed for q in run.diagnoses)
    names = sorted(found, key=lambda name: (not name.endswith("over_training"), name))
    return [
        _topic(name, list(_answers(name, shown, styles)), f"{prefix}{number}")
        for number, name in enumerate(names)
    ]


def _answers(
    name: str, groups: Sequence[RunGroup], styles: figures.GroupStyles
) -> Iterator[GroupAnswers]:
    for group in groups:
        runs = tuple(run for run in group.one_per_seed if name in run.diagnoses)
        if runs:
            found = tuple(run.diagnoses[name] for run in runs)
            yield GroupAnswers(group.label, styles[group.label], runs, found)


def _topic(name: str, answers: Sequence[GroupAnswers], prefix: str) -> QuestionSection:
    every = [diagnosis for answer in answers for diagnosis in answer.diagnoses]
    numbers = tuple(dict.fromkeys(n for d in every for n in d.numbers))[:MOST_NUMBERS]
    kinds = {panel.title: panel.kind for d in every for panel in d.panels}
    panels, galleries = list[figures.SvgPanel](), list[Gallery]()
    for title, kind in kinds.items():
        if kind == "pictures":
            galleries.append(_gallery(title, answers))
        else:
            panels += _drawn(title, answers, f"{prefix}-{len(panels)}")
    return QuestionSection(
        question=name,
        source=every[0].source,
        reading=" ".join(dict.fromkeys(d.reading for d in every)),
        settings=_settings(every),
        numbers=numbers,
        answers=tuple(_differing(answers)),
        panels=tuple(panels),
        galleries=tuple(galleries),
    )


def _differing(answers: Sequence[GroupAnswers]) -> Sequence[GroupAnswers]:
    """Return the answers, or one for all of them where they have the same numbers."""
    first = answers[0].diagnoses[0]
    if len(answers) > 1 and _same([d.numbers for a in answers for d in a.diagnoses]):
        return [GroupAnswers(EVERY, OTHER_STYLE, answers[0].runs, (first,))]
    return answers


def _same(found: Sequence[object]) -> bool:
    return all(one == found[0] for one in found)


def _settings(diagnoses: Sequence[Diagnosis]) -> str:
    """Write the settings; where they differ, each and a warning."""
    keys = dict.fromkeys(key for d in diagnoses for key in d.settings)
    values = {k: [str(d.settings.get(k, "none")) for d in diagnoses] for k in keys}
    told = ", ".join(f"{k} {' or '.join(dict.fromkeys(v))}" for k, v in values.items())
    differ = not _same([d.settings for d in diagnoses])
    return f"{told} (settings differ: compare with care)" if differ else told


def _drawn(
    title: str, answers: Sequence[GroupAnswers], prefix: str
) -> Iterator[figures.SvgPanel]:
    """Draw one panel: the norms of a family in the same axes, or each by itself."""
    found = [(answer, list(_panels(title, answer))) for answer in answers]
    found = [(answer, panels) for answer, panels in found if panels]
    every = [panel for _, panels in found for panel in panels]
    if len(found) > 1 and _same(every):
        yield diagnosis_panels.alone(
            title, StyledPanel(EVERY, OTHER_STYLE, every[0]), prefix
        )
        return
    if not diagnosis_panels.together(every):
        for number, (answer, panels) in enumerate(found):
            named = f"{title}: {answer.named}" if len(answers) > 1 else title
            one = StyledPanel(answer.named, answer.style, panels[0])
            yield diagnosis_panels.alone(named, one, f"{prefix}-{number}")
        return
    radius_keys: dict[str, list[StyledPanel]] = {}
    for answer, panels in found:
        several = [StyledPanel(answer.named, answer.style, panel) for panel in panels]
        radius_keys.setdefault(answer.family, []).extend(several[: figures.MOST_RUNS])
    for number, (family, shown) in enumerate(radius_keys.items()):
        named = f"{title}: {family}" if len(radius_keys) > 1 else title
        yield diagnosis_panels.overlay(named, shown, f"{prefix}-{number}")


def _panels(title: str, answer: GroupAnswers) -> Iterator[Panel]:
    for diagnosis in answer.diagnoses:
        yield from (panel for panel in diagnosis.panels if panel.title == title)


def _gallery(title: str, answers: Sequence[GroupAnswers]) -> Gallery:
    found = [(answer, next(_panels(title, answer), None)) for answer in answers]
    shown = [
        (answer.named, answer.style, panel) for answer, panel in found if panel is not None
    ]
    if len(shown) > 1 and _same([panel for *_, panel in shown]):
        shown = [(EVERY, OTHER_STYLE, shown[0][2])]
    return Gallery(title, tuple((a, b, picture_urls(panel)) for a, b, panel in shown))


def picture_urls(panel: Panel) -> tuple[tuple[str, str], ...]:
    """Return the pictures of a panel: address and caption each."""
    return tuple((picture_url(one), one.label) for one in panel.pictures[:MOST_PICTURES])


def picture_url(picture: Picture) -> str:
    """Return a picture as PNG: signed ones blue below zero and red above."""
    values = np.array(picture.channels, dtype=np.float64)
    if picture.signed:
        return png(diverging(values.mean(0)))
    low, high = float(values.min(initial=0.0)), float(values.max(initial=1.0))
    if picture.stretched:
        low, high = float(values.min()), float(values.max())
    return png((values - low) / (high - low or 1.0))


def diverging(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return colours (3, height, width): white at zero, red above, blue below.

    >>> diverging(np.array([[0.0, 2.0, -2.0]]))[:, 0].T.tolist()
    [[1.0, 1.0, 1.0], [0.7, 0.1, 0.1], [0.1, 0.2, 0.7]]
    """
    size = np.abs(values).max(initial=0.0) or 1.0
    share = (values / size)[None]
    red = 1 - np.maximum(share, 0) * np.array([0.3, 0.9, 0.9])[:, None, None]
    blue = -np.minimum(share, 0) * np.array([0.9, 0.8, 0.3])[:, None, None]
    colours: NDArray[np.float64] = np.round(red - blue, 12)
    return colours


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{fmean(values):.4g} ± {stdev(values) / sqrt(len(values)):.2g}"
