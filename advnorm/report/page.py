"""The page that compares runs: collect its contents, and render the template."""

from collections.abc import Mapping, Sequence
from typing import Any

from advnorm.records import Environment as Machine
from advnorm.records import Run
from advnorm.report import diagnoses, example_images, figures
from advnorm.report.accuracy_curves import (
    radius_keys,
    radius_panels,
    step_panels,
    step_titles,
)
from advnorm.report.comparison import compare
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.groups import ReportRun, RunGroup, differences, load_groups
from advnorm.report.rows import group_rows, threat_label
from advnorm.report.scatter import scatter_panel
from advnorm.report.styles import (
    OTHER_STYLE,
    STYLES,
    GroupStyle,
    assign_styles,
    headline_key,
)
from advnorm.report.template import environment
from advnorm.report.training_curves import training_panels

MOST_RECIPES = 100
"""The most recipes that are shown; the others are in their run folders."""


def render(runs: Sequence[Run]) -> str:
    """Return the page that compares ``runs``."""
    groups = load_groups(runs)
    rows = group_rows(groups)
    key = headline_key(groups)
    attacks = radius_keys(groups)
    styles = assign_styles(groups, rows, key)
    loaded = [run for group in groups for run in group.members]
    return (
        environment()
        .get_template("page.html")
        .render(
            groups=groups,
            runs=loaded,
            data=_data(loaded),
            attacks=attacks,
            branched=any(
                result.branch for run in loaded for result in run.results.values()
            ),
            flagged=any(result.flags for run in loaded for result in run.results.values()),
            comparison=compare(groups, rows, styles),
            unfinished={group.label: unfinished_text(group.unfinished) for group in groups},
            styles=styles,
            legend={
                label: style for label, style in styles.items() if style is not OTHER_STYLE
            },
            most_groups=len(STYLES),
            headline=_attack(loaded, key),
            scatter=scatter_panel(groups, styles, key, "scatter") if key else None,
            curves=training_panels(groups, styles, "curve"),
            radii=radius_panels(attacks, rows, styles, "radius"),
            step_titles=step_titles(groups),
            steps=step_panels(groups, styles, "steps"),
            sections=diagnoses.question_sections(groups, styles, "why"),
            strips=example_images.example_strips(groups, key),
            limits={"runs": figures.MOST_RUNS, "panels": figures.MOST_PANELS},
            drawn=sum(len(g.members) for g in groups if styles[g.label] is not OTHER_STYLE),
            missing=_missing(loaded),
            differing=_differing(groups, styles),
            recipes=loaded[:MOST_RECIPES],
            machines=_machines(loaded),
        )
    )


def _attack(runs: Sequence[ReportRun], key: str | None) -> str:
    results = [result for run in runs for result in run.results.values()]
    result = next((r for r in results if r.key_without_branch == key), None)
    if result is None or result.threat is None:
        return ""
    return f"{result.condition}, {threat_label(result.threat)}"


def _data(runs: Sequence[ReportRun]) -> list[str]:
    """Return the names of the training data."""
    return list(dict.fromkeys(run.choice("data") for run in runs))


def _missing(runs: Sequence[ReportRun]) -> dict[str, list[ReportRun]]:
    """Return the runs that lack something, by what is missing."""
    adversary = {run.name for run in runs if any(r.threat for r in run.results.values())}
    return {
        "results": [run for run in runs if not run.results],
        "attacks": [run for run in runs if run.results and run.name not in adversary],
        "examples": [run for run in runs if not any((run.run.path / "examples").glob("*"))],
        "epochs": [run for run in runs if not run.epochs],
        "curve": [run for run in runs if len(run.epochs) == 1],
        "validation": [
            run
            for run in runs
            if run.epochs
            and not any(e.validation_clean or e.validation_robust for e in run.epochs)
        ],
    }


def _differing(
    groups: Sequence[RunGroup], styles: Mapping[str, GroupStyle]
) -> dict[str, Any]:
    """Return the recipe keys in which groups differ, and each group's values."""
    recipes = {group.label: group.members[0].recipe for group in groups}
    keys = differences(list(recipes.values()))
    values = [
        (label, styles[label], [recipe.get(key, "unset") for key in keys])
        for label, recipe in recipes.items()
    ]
    return {"keys": keys, "values": values}


def _machines(runs: Sequence[ReportRun]) -> list[tuple[Machine, list[str]]]:
    """Return each environment once, with the names of its runs."""
    machines: dict[Machine, list[str]] = {}
    for run in runs:
        if run.environment:
            machines.setdefault(run.environment, []).append(run.name)
    return list(machines.items())
