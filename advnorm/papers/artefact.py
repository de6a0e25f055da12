"""An artefact: a table or figure of a paper, the runs it needs and what it claims."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advnorm.papers.claims import Claim
from advnorm.papers.numbers import NumberSource
from advnorm.recipe import EvaluationSpec, Recipe
from advnorm.records import Published, Scale
from advnorm.registry import Registry
from advnorm.studies.cached_answers import QuestionOptions


@dataclass(frozen=True)
class Job:
    """One row: a run, and where in its records the row's numbers are."""

    row: str
    recipe: Recipe
    numbers: Mapping[str, NumberSource]
    """By column."""
    questions: Mapping[str, QuestionOptions] = field(default_factory=dict)
    """What is asked of the run, each question with its options."""
    samples: int = 200
    """Test samples of the questions."""
    evaluations: Sequence[EvaluationSpec] = (EvaluationSpec(),)
    """The run is evaluated with each. Settings that are not written are those of the
    recipe's evaluation."""
    perturbed: bool = False
    """Whether batch-norm statistics are perturbed as the recipe says."""
    targets: Mapping[str, Recipe] = field(default_factory=dict)
    """Runs, by name, that are tested on the adversarial examples of this one: those of the
    single attack and radius of its recipe's evaluation."""


def seeded(job: Job, seed: int) -> Job:
    """Return a job under another seed."""
    recipe, *others = (
        recipe.model_copy(update={"seed": seed})
        for recipe in (job.recipe, *job.targets.values())
    )
    return replace(job, recipe=recipe, targets=dict(zip(job.targets, others, strict=True)))


def evaluation_recipes(job: Job) -> list[Recipe]:
    """Return a job's recipe with each of its evaluations."""
    return [job.recipe.replace(evaluation=changes) for changes in job.evaluations]


@dataclass(frozen=True)
class Artefact:
    """A table or figure. Its function returns the jobs of a scale and documents them."""

    name: str
    """``galloway2019/table1``."""
    title: str
    jobs: Callable[[Scale], Sequence[Job]]
    published: Mapping[str, Mapping[str, Published]]
    claims: Sequence[Claim] = ()
    x: str = ""
    """Of a figure: what its columns are values of, and then what is drawn over them."""
    y: str = ""
    shown: Sequence[str] = ()
    """Questions whose panels belong to the figure, of the first seed."""
    relative_to: str = ""
    """The row that all others are shown as ratios to."""
    needs: str = ""
    """What ``full`` needs that is not had by ``advnorm data get``, in one line."""

    def published_at(self, row: str, column: str) -> Published | None:
        """Return the paper's number, where it has one."""
        return self.published.get(row, {}).get(column)

    @property
    def paper(self) -> str:
        """The paper it belongs to."""
        return self.name.partition("/")[0]


ARTEFACTS: Registry[Artefact] = Registry("artefact")
"""Every table and figure of the five papers that shows something measured."""

ILLUSTRATIONS: dict[str, str] = {
    "galloway2019/figure7": "an illustration of a linear model's values",
    "galloway2019/table15": "an architecture (model cnn_cleverhans)",
    "xie2020/figure4": "an illustration of batch norm for two domains",
    "sridhar2021/table4": "three architectures (models cnn_small, cnn_medium, cnn_large)",
}
"""The captions that show nothing measured, and what they are."""

CAPTION_COUNTS: dict[str, dict[str, int]] = {
    "galloway2019": {"figure": 17, "table": 15},
    "xie2020": {"figure": 7, "table": 7},
    "sridhar2021": {"figure": 1, "table": 6},
    "sitawarin2021": {"figure": 6, "table": 4},
    "apart2022": {"figure": 2, "table": 3},
}
"""How many figures and tables each paper has."""


def captions() -> Iterator[str]:
    """Yield every caption of the five papers, such as ``xie2020/table3``, in order."""
    for paper, kinds in CAPTION_COUNTS.items():
        for kind, count in kinds.items():
            yield from (f"{paper}/{kind}{number}" for number in range(1, count + 1))


Numbers = Mapping[str, Sequence[float | tuple[float, float] | None]]


def artefact(  # noqa: PLR0913 (what a caption and a table hold)
    name: str,
    title: str,
    *,
    columns: Sequence[str] = (),
    published: Numbers | None = None,
    claims: Sequence[Claim] = (),
    x: str = "",
    y: str = "",
    shown: Sequence[str] = (),
    relative_to: str = "",
    needs: str = "",
) -> Callable[[Callable[[Scale], Sequence[Job]]], Callable[[Scale], Sequence[Job]]]:
    """Enter a function that returns the jobs of each scale as an artefact.

    Args:
        name: Paper and caption, such as ``galloway2019/table1``.
        title: What it shows, in a few words.
        columns: The columns of ``published``.
        published: The paper's numbers by row: a value, a value with its standard error, or
            ``None`` where the paper has none.
        claims: What the paper says about them.
        x: Of a figure: what its columns are values of.
        y: Of a figure: what is drawn.
        shown: Questions whose panels are part of it.
        relative_to: The row that all others are shown as ratios to.
        needs: What cannot be had by ``advnorm data get``.
    """

    def enter(jobs: Callable[[Scale], Sequence[Job]]) -> Callable[[Scale], Sequence[Job]]:
        table = {row: _published(columns, row, v) for row, v in (published or {}).items()}
        ARTEFACTS.register(name)(
            Artefact(name, title, jobs, table, claims, x, y, shown, relative_to, needs)
        )
        return jobs

    return enter


def _published(
    columns: Sequence[str], row: str, values: Sequence[float | tuple[float, float] | None]
) -> dict[str, Published]:
    assert len(columns) == len(values), f"{row}: {len(values)} numbers"
    numbers = {}
    for column, value in zip(columns, values, strict=True):
        if isinstance(value, tuple):
            numbers[column] = Published(value=value[0], error=value[1])
        elif value is not None:
            numbers[column] = Published(value=value)
    return numbers
