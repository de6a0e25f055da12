"""``--to robustbench``: an entry of RobustBench's model zoo, with measured numbers only."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from advnorm.records import Accuracy, Result
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.measurements import MeasuredRun, measured_run
from advnorm.runs.export.source import ExportRequest

AUTO_ATTACK = "standard"
"""The condition that is AutoAttack's."""
BOARDS = ("cifar10", "cifar100", "imagenet")
"""Data sets that the model zoo has."""
_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}


@FORMATS.register("robustbench")
def robustbench_file(request: ExportRequest, out: Path) -> RenderedExport:
    """Write the JSON of RobustBench's model zoo; what was not measured is null."""
    measured = measured_run(request, "robustbench")
    branch = request.branch or measured.recipe.evaluation.branch
    results = measured.of_branch(branch)
    entry = _entry(measured, results)
    missing = [field for field, value in entry.items() if value is None]
    threat = measured.recipe.threat
    notes = [f"null, because nothing in the run says it: {', '.join(missing)}"]
    if measured.recipe.data.name in BOARDS:
        folder = f"model_info/{measured.recipe.data.name}/{_NORMS[threat.norm]}"
        notes.append(f"its place in RobustBench: {folder}")
    else:
        notes.append(f"RobustBench has no leaderboard for {measured.recipe.data.name}")
    text = json.dumps(entry, indent=2)
    return RenderedExport({out: f"{text}\n".encode()}, tuple(notes))


def _entry(measured: MeasuredRun, results: list[Result]) -> dict[str, Any]:
    """Return the fields in the order of the model zoo."""
    recipe, threat = measured.recipe, measured.recipe.threat
    clean = next((r for r in results if r.condition == "clean"), None)
    attacked = next(
        (r for r in results if _is_auto_attack(r, threat.norm, threat.eps)), None
    )
    return {
        "link": None,
        "name": None,
        "authors": None,
        "additional_data": None if recipe.init_from else False,
        "number_forward_passes": 1,
        "dataset": recipe.data.name,
        "venue": None,
        "architecture": recipe.model.name,
        "eps": written_radius(threat.eps),
        "clean_acc": _percent(clean),
        "reported": None,
        "autoattack_acc": _percent(attacked),
        "unreliable": _unreliable(measured, attacked),
        "footnote": _footnote(measured, clean, attacked),
    }


def _is_auto_attack(result: Result, norm: str, eps: float) -> bool:
    threat = result.threat
    return (
        result.condition == AUTO_ATTACK
        and threat is not None
        and threat.norm == norm
        and abs(threat.eps - eps) <= 1e-9
    )


def written_radius(eps: float) -> str:
    """Write a radius as the zoo does.

    >>> written_radius(8 / 255), written_radius(0.5), written_radius(0.031)
    ('8/255', '0.5', '0.031')
    """
    if Fraction(f"{eps:.12g}").denominator <= 1000:
        return f"{eps:g}"
    levels = eps * 255
    return f"{levels:.0f}/255" if abs(levels - round(levels)) < 1e-9 else f"{eps:g}"


def _percent(result: Result | None) -> str | None:
    return None if result is None else f"{100 * result.accuracy.fraction:.2f}"


def _unreliable(measured: MeasuredRun, attacked: Result | None) -> bool | None:
    """Say whether an audit doubts the robust accuracy; ``None`` without an audit."""
    audits = [audit for audit in measured.audits if attacked and audit.concerns(attacked)]
    return any(audit.flagged for audit in audits) if audits else None


def _footnote(measured: MeasuredRun, clean: Result | None, attacked: Result | None) -> str:
    """Say with how many images each number was measured, and what may be wrong with it."""
    parts = [f"norm: {measured.recipe.norm.name}"]
    for name, result in (("clean", clean), ("AutoAttack", attacked)):
        if result is not None:
            parts.append(f"{name}: {_interval(result.accuracy)}")
    named = next((r.branch for r in (attacked, clean) if r and r.branch), None)
    parts += [f"branch: {named}"] if named else []
    parts += attacked.flags if attacked else ()
    parts += [measured.mark.strip("()")] if measured.mark else []
    return "; ".join(parts)


def _interval(accuracy: Accuracy) -> str:
    low, high = accuracy.interval
    return f"{accuracy.n} test images, 95% interval [{low:.2%}, {high:.2%}]"
