"""The record of a diagnosis: one question about a model, its numbers and drawings."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from advnorm.records.base import LARGE, Record, Setting
from advnorm.records.completion import TrainingProgress, mark_of


class Series(Record):
    """A line or a cloud of points, under a name."""

    name: str
    """Its name in the legend."""
    x: tuple[float, ...]
    """Positions."""
    y: tuple[float, ...]
    """Values, as many as positions."""
    faint: bool = False
    """Whether it is drawn faintly behind the others, like points behind their average."""

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{self.name}: {len(self.x)} x and {len(self.y)} y")
        return self


class Picture(Record):
    """A small image: its channels (1 or 3), each a list of rows."""

    label: str
    """The words below it."""
    channels: tuple[tuple[tuple[float, ...], ...], ...]
    """Pixels by channel, row and column."""
    signed: bool = False
    """Whether zero is the middle of its colours, as for weights."""
    stretched: bool = False
    """Whether its smallest value is black and its largest white, as for a map."""


class Panel(Record):
    """One drawing of a diagnosis."""

    kind: Literal["lines", "points", "bars", "pictures"]
    """What is drawn."""
    title: str
    """The words above it."""
    x: str = ""
    """The name of the horizontal axis."""
    y: str = ""
    """The name of the vertical axis."""
    log: bool = False
    """Whether the y axis is logarithmic."""
    names: tuple[str, ...] = ()
    """Labels of x = 0, 1, ... on a categorical axis."""
    series: tuple[Series, ...] = ()
    """Of lines, points and bars."""
    pictures: tuple[Picture, ...] = ()
    """Of pictures."""


class Diagnosis(Record):
    """The answer to one question about a model: ``diagnoses/<question>.json``."""

    LIMIT: ClassVar[int] = LARGE
    question: str
    """One of ``advnorm list questions``."""
    source: str
    """Paper and figure or table that ask it."""
    reading: str
    """One sentence that says how to read the panels."""
    numbers: dict[str, float] = {}
    """The answer, by name."""
    settings: dict[str, Setting] = {}
    """The options that it was asked with."""
    panels: tuple[Panel, ...] = ()
    """Its drawings."""
    weights: str = "given"
    """Which checkpoint, and its SHA-256; ``given`` for a model that is no run's."""
    training: TrainingProgress | None = None
    """Of a run: its progress."""
    branch: Literal["adversarial", "clean"] | None = None
    """Of a model with a mixture norm: the branch that was diagnosed."""
    seconds: float = 0.0
    """What it took."""

    def __str__(self) -> str:
        where = f", {self.branch} branch" if self.branch else ""
        settings = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        width = max(map(len, self.numbers), default=0)
        mark = mark_of(self.training)
        numbers = [
            f"  {name:<{width}}  {value:.5g}{mark}" for name, value in self.numbers.items()
        ]
        head = f"{self.question} ({self.source}{where}; {settings})"
        return "\n".join([head, *numbers, f"  {self.reading}"])
