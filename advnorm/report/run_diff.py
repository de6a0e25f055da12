"""``advnorm report A B --diff``: two runs compared, as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from advnorm.records import Run
from advnorm.report.groups import ReportRun, differences, load_groups
from advnorm.report.run_comparison import METHOD, paired_comparisons
from advnorm.report.verdict_arrays import all_verdicts

MOST_SAMPLES = 20
"""The most samples that are named."""
NOTHING_TO_COMPARE = (
    "The runs have no verdicts on the same samples under the same condition: evaluate both "
    "with the same conditions and radii."
)


@dataclass(frozen=True)
class RecipeDifference:
    """A key in which two recipes differ."""

    key: str
    first: str
    second: str


def recipe_differences(first: ReportRun, second: ReportRun) -> list[RecipeDifference]:
    """Return the keys in which two recipes differ; the seed counts here."""
    keys = differences([first.recipe, second.recipe])
    if first.recipe.get("seed") != second.recipe.get("seed"):
        keys = ["seed", *keys]
    return [
        RecipeDifference(
            key, first.recipe.get(key, "unset"), second.recipe.get(key, "unset")
        )
        for key in keys
    ]


def diff_text(first: Run, second: Run) -> str:
    """Return the comparison of two runs as text: recipes, paired tests, changed samples."""
    groups = load_groups([first, second])
    runs = [run for group in groups for run in group.members]
    if len(runs) != 2:
        raise ValueError(f"{first.path} is named twice: --diff compares two different runs")
    one, other = runs
    verdicts = all_verdicts(groups)
    lines = [f"A: {one.name}", f"B: {other.name}", "", "recipes differ in:"]
    lines += [
        f"  {d.key}: A {d.first}, B {d.second}" for d in recipe_differences(one, other)
    ] or ["  nothing"]
    pairs = paired_comparisons(groups, verdicts, None)
    for pair in pairs:
        decided = "decided" if pair.decided else "not decided"
        lines += [
            "",
            f"{pair.condition} (n={pair.n}):",
            f"  A {pair.first_accuracy}",
            f"  B {pair.second_accuracy}",
            f"  A - B in points: {pair.difference_text}",
            f"  p = {pair.p:.2g} ({decided} at 5%), {pair.raw_p:.2g} uncorrected",
            f"  right in A only: {_listed(pair.first_only)}",
            f"  right in B only: {_listed(pair.second_only)}",
            *(f"  ! {warning}" for warning in pair.warnings),
        ]
    if not pairs:
        return "\n".join([*lines, "", NOTHING_TO_COMPARE])
    return "\n".join([*lines, "", METHOD])


def _listed(samples: Sequence[int]) -> str:
    """Name the first samples, and their number.

    >>> _listed([4, 7]), _listed([])
    ('2 samples: 4, 7', '0 samples')
    """
    plural = "" if len(samples) == 1 else "s"
    if not samples:
        return f"0 sample{plural}"
    more = f" and {len(samples) - MOST_SAMPLES} more" if len(samples) > MOST_SAMPLES else ""
    names = ", ".join(map(str, samples[:MOST_SAMPLES]))
    return f"{len(samples)} sample{plural}: {names}{more}"
