"""The page that compares runs: collect its contents, and render the template."""

from collections.abc import Mapping, Sequence
from typing import Any

from advnorm.records import Environment as Machine
from advnorm.records import Result, Run
from advnorm.report import diagnoses, example_images, figures, run_comparison
from advnorm.report.accuracy_curves import (
    radius_keys,
    radius_panels,
    step_panels,
    step_titles,
)
from advnorm.report.attack_waterfall import MOST_WATERFALLS, waterfalls
from advnorm.report.brackets import MOST_SAMPLES, bracket_panels, run_brackets
from advnorm.report.comparison import compare
from advnorm.report.completion_marks import unfinished_text
from advnorm.report.confusion import first_confusion, outcome_rows
from advnorm.report.cost import GroupCost, group_costs, training_seconds
from advnorm.report.diagnoses import QuestionSection
from advnorm.report.groups import ReportRun, RunGroup, differences, load_groups
from advnorm.report.provenance import provenance
from advnorm.report.radius_chart import COLOURS, share_panels
from advnorm.report.radius_shares import shares_of_groups
from advnorm.report.rows import (
    ReportRow,
    TableCell,
    condition_label,
    group_rows,
    threat_label,
)
from advnorm.report.run_comparison import METHOD, paired_comparisons
from advnorm.report.sample_data import sample_data
from advnorm.report.scatter import cost_panel, scatter_panel
from advnorm.report.styles import (
    OTHER_STYLE,
    STYLES,
    GroupStyle,
    assign_styles,
    headline_key,
)
from advnorm.report.template import environment
from advnorm.report.training_curves import training_panels
from advnorm.report.verdict_arrays import OUTCOMES, all_verdicts
from advnorm.report.worst_case import WorstCase, worst_case

CHAPTERS = (
    ("overview", "Overview"),
    ("samples", "Samples"),
    ("radii", "Radii"),
    ("compare", "Compare"),
    ("training", "Training"),
    ("why", "Diagnoses"),
    ("provenance", "Provenance"),
)
"""The sections: anchor and title each."""
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
    verdicts = all_verdicts(groups)
    shares = shares_of_groups(groups, verdicts)
    brackets = run_brackets(groups)
    falls = waterfalls(groups, verdicts, key)
    worst = worst_case(groups, verdicts, _headline(loaded, key))
    sections = diagnoses.question_sections(groups, styles, "why")
    seconds = {run.name: training_seconds(run) for run in loaded}
    comparison = compare(groups, rows, styles, worst)
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
            chapters=[
                c
                for c in CHAPTERS
                if c[0] != "why" or any(not _watched(s) for s in sections)
            ],
            comparison=comparison,
            note_numbers={text: n for n, text in enumerate(comparison.notes, start=1)},
            worst=worst,
            costs=_costs(groups, rows, worst, key),
            cost_chart=cost_panel(groups, styles, key, seconds, "cost") if key else None,
            samples=sample_data(groups, verdicts, key),
            outcomes=outcome_rows(groups, verdicts),
            outcome_names=OUTCOMES[1:],
            confusion=first_confusion(groups, verdicts, key),
            waterfalls=falls[:MOST_WATERFALLS],
            waterfalls_left_out=max(0, len(falls) - MOST_WATERFALLS),
            shares=shares,
            share_panels=share_panels(shares, "shares"),
            brackets=brackets,
            bracket_panels=bracket_panels(brackets, "brackets"),
            most_brackets=MOST_SAMPLES,
            plants=[
                (run.name, condition_label(result), result.planted)
                for run in loaded
                for result in run.results.values()
                if result.planted
            ],
            share_colours=COLOURS,
            certificates=any(each.certificates for each in shares),
            pairs=paired_comparisons(groups, verdicts, key),
            compare_method=METHOD,
            most_compared=run_comparison.MOST_RUNS,
            alarms=[(run.name, alarm) for run in loaded for alarm in run.alarms],
            monitored=[section for section in sections if _watched(section)],
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
            sections=[section for section in sections if not _watched(section)],
            strips=example_images.example_strips(groups, key),
            limits={"runs": figures.MOST_RUNS, "panels": figures.MOST_PANELS},
            drawn=sum(len(g.members) for g in groups if styles[g.label] is not OTHER_STYLE),
            missing=_missing(loaded),
            differing=_differing(groups, styles),
            recipes=[(provenance(run), run.text) for run in loaded[:MOST_RECIPES]],
            machines=_machines(loaded),
        )
    )


def _headline(runs: Sequence[ReportRun], key: str | None) -> Result | None:
    results = [result for run in runs for result in run.results.values()]
    return next((r for r in results if r.key_without_branch == key), None)


def _watched(section: QuestionSection) -> bool:
    """Tell whether a section is about measurements in training."""
    return section.question.endswith("over_training")


def _costs(
    groups: Sequence[RunGroup],
    rows: Sequence[ReportRow],
    worst: WorstCase | None,
    key: str | None,
) -> list[tuple[GroupCost, TableCell | None]]:
    """Return each group's cost with its robust accuracy: the worst case if it is known."""
    cells = {row.label: row.cells.get(key) if key else None for row in rows}
    robust = worst.groups if worst else cells
    return [(cost, robust.get(cost.label)) for cost in group_costs(groups)]


def _attack(runs: Sequence[ReportRun], key: str | None) -> str:
    result = _headline(runs, key)
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
