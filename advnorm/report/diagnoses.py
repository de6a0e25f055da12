"""Why a choice works or fails: the section of each diagnosed question."""

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
from advnorm.report.example_images import png_url
from advnorm.report.groups import ReportRun, RunGroup
from advnorm.report.styles import OTHER_STYLE, GroupStyle

MOST_NUMBERS = 40
"""The most numbers of a question in its table; the others are in the record only."""
MOST_COLUMNS = 7
"""The most columns of a table; more numbers are rows, and groups the columns."""
MOST_PICTURES = 40
"""The most pictures of one run in one panel."""
EVERY_RUN = "every run"
"""The label of answers that are equal for all groups: they do not depend on the model."""


@dataclass(frozen=True)
class GroupAnswers:
    """A group, and the diagnoses of its runs: one a seed."""

    label: str
    style: GroupStyle
    runs: tuple[ReportRun, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def family(self) -> str:
        """The label without the norm: groups of one family share axes."""
        return self.label.partition(" · ")[2]

    @property
    def unfinished(self) -> str:
        """The progress of the runs whose training was not finished."""
        return unfinished_diagnoses(self.diagnoses)

    @property
    def title(self) -> str:
        """The label, with the mark of unfinished runs."""
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
    """Label, style, and the pictures: URL and caption each."""

    @property
    def single(self) -> bool:
        """Whether each group has one picture: those are larger, side by side."""
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


def question_sections(
    groups: Sequence[RunGroup], styles: figures.GroupStyles, prefix: str
) -> list[QuestionSection]:
    """Return a section for every diagnosed question; those over training come first."""
    shown = [group for group in groups if styles[group.label] is not OTHER_STYLE]
    names = {q for g in shown for run in g.one_per_seed for q in run.diagnoses}
    ordered = sorted(names, key=lambda name: (not name.endswith("over_training"), name))
    return [
        _section(name, list(_answers(name, shown, styles)), f"{prefix}{number}")
        for number, name in enumerate(ordered)
    ]


def _answers(
    name: str, groups: Sequence[RunGroup], styles: figures.GroupStyles
) -> Iterator[GroupAnswers]:
    for group in groups:
        runs = tuple(run for run in group.one_per_seed if name in run.diagnoses)
        if runs:
            diagnoses = tuple(run.diagnoses[name] for run in runs)
            yield GroupAnswers(group.label, styles[group.label], runs, diagnoses)


def _section(name: str, answers: Sequence[GroupAnswers], prefix: str) -> QuestionSection:
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
    """Return the answers, or a single one if all have the same numbers."""
    first = answers[0].diagnoses[0]
    if len(answers) > 1 and _same([d.numbers for a in answers for d in a.diagnoses]):
        return [GroupAnswers(EVERY_RUN, OTHER_STYLE, answers[0].runs, (first,))]
    return answers


def _same(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def _settings(diagnoses: Sequence[Diagnosis]) -> str:
    """Write the settings; if they differ, all of their values and a warning."""
    keys = dict.fromkeys(key for d in diagnoses for key in d.settings)
    values = {k: [str(d.settings.get(k, "none")) for d in diagnoses] for k in keys}
    text = ", ".join(f"{k} {' or '.join(dict.fromkeys(v))}" for k, v in values.items())
    differ = not _same([d.settings for d in diagnoses])
    return f"{text} (settings differ: compare with care)" if differ else text


def _drawn(
    title: str, answers: Sequence[GroupAnswers], prefix: str
) -> Iterator[figures.SvgPanel]:
    """Draw one panel: the norms of a family in the same axes, or each by itself."""
    pairs = [(answer, list(_panels(title, answer))) for answer in answers]
    pairs = [(answer, panels) for answer, panels in pairs if panels]
    every = [panel for _, panels in pairs for panel in panels]
    if len(pairs) > 1 and _same(every):
        yield diagnosis_panels.draw_single(
            title, StyledPanel(EVERY_RUN, OTHER_STYLE, every[0]), prefix
        )
        return
    if not diagnosis_panels.can_overlay(every):
        for number, (answer, panels) in enumerate(pairs):
            name = f"{title}: {answer.title}" if len(answers) > 1 else title
            styled = StyledPanel(answer.title, answer.style, panels[0])
            yield diagnosis_panels.draw_single(name, styled, f"{prefix}-{number}")
        return
    families: dict[str, list[StyledPanel]] = {}
    for answer, panels in pairs:
        styled_panels = [StyledPanel(answer.title, answer.style, panel) for panel in panels]
        families.setdefault(answer.family, []).extend(styled_panels[: figures.MOST_RUNS])
    for number, (family, shown) in enumerate(families.items()):
        name = f"{title}: {family}" if len(families) > 1 else title
        yield diagnosis_panels.draw_overlay(name, shown, f"{prefix}-{number}")


def _panels(title: str, answer: GroupAnswers) -> Iterator[Panel]:
    for diagnosis in answer.diagnoses:
        yield from (panel for panel in diagnosis.panels if panel.title == title)


def _gallery(title: str, answers: Sequence[GroupAnswers]) -> Gallery:
    panels = [(answer, next(_panels(title, answer), None)) for answer in answers]
    shown = [
        (answer.title, answer.style, panel) for answer, panel in panels if panel is not None
    ]
    if len(shown) > 1 and _same([panel for *_, panel in shown]):
        shown = [(EVERY_RUN, OTHER_STYLE, shown[0][2])]
    return Gallery(title, tuple((a, b, picture_urls(panel)) for a, b, panel in shown))


def picture_urls(panel: Panel) -> tuple[tuple[str, str], ...]:
    """Return the pictures of a panel: URL and caption each."""
    pictures = panel.pictures[:MOST_PICTURES]
    return tuple((picture_url(picture), picture.label) for picture in pictures)


def picture_url(picture: Picture) -> str:
    """Return a picture as the URL of a PNG; signed ones are blue below 0 and red above."""
    values = np.array(picture.channels, dtype=np.float64)
    if picture.signed:
        return png_url(diverging(values.mean(0)))
    low, high = float(values.min(initial=0.0)), float(values.max(initial=1.0))
    if picture.stretched:
        low, high = float(values.min()), float(values.max())
    return png_url((values - low) / (high - low or 1.0))


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
