"""``--to card``: a model card, Markdown with the metadata that hubs read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from advnorm.records import Result, mark_of
from advnorm.runs.export.card_limits import limits
from advnorm.runs.export.formats import FORMATS, RenderedExport
from advnorm.runs.export.measurements import MeasuredRun, measured_run
from advnorm.runs.export.robustbench import written_radius
from advnorm.runs.export.source import ExportRequest


@FORMATS.register("card")
def card_file(request: ExportRequest, out: Path) -> RenderedExport:
    """Write a model card: data, threat, norms, numbers with intervals, flags, limits."""
    measured = measured_run(request, "card")
    notes = [f"{len(measured.results)} results"]
    if measured.outdated:
        notes.append(f"{measured.outdated} results of other weights are left out")
    return RenderedExport({out: _card(measured).encode()}, ("; ".join(notes),))


def _card(measured: MeasuredRun) -> str:
    metadata = yaml.safe_dump(_metadata(measured), sort_keys=False, allow_unicode=True)
    title = [f"# {measured.name}"]
    if measured.mark:
        title.append(f"**Training is not finished {measured.mark}.**")
    sections = {
        "Network": _network(measured),
        "Data and training": _training(measured),
        "Results": _results(measured),
        "Is the robustness real?": _audits(measured),
        "Limits": "\n".join(f"- {line}" for line in limits(measured)),
    }
    body = [f"## {heading}\n\n{text}" for heading, text in sections.items()]
    return f"---\n{metadata}---\n\n" + "\n\n".join([*title, *body]) + "\n"


def _metadata(measured: MeasuredRun) -> dict[str, Any]:
    """Return the fields that hubs read; the licence is the user's to add."""
    data = measured.recipe.data.name
    metrics = [
        {
            "type": "accuracy",
            "name": _description(r),
            "value": round(r.accuracy.fraction, 4),
        }
        for r in measured.results
        if not r.other
    ]
    index = {
        "name": measured.name,
        "results": [
            {
                "task": {"type": "image-classification"},
                "dataset": {"type": data, "name": data, "split": "test"},
                "metrics": metrics,
            }
        ],
    }
    metadata: dict[str, Any] = {
        "library_name": "pytorch",
        "pipeline_tag": "image-classification",
        "tags": ["adversarial-robustness", f"norm:{measured.recipe.norm.name}"],
        "datasets": [data],
        "metrics": ["accuracy"],
    }
    return {**metadata, "model-index": [index]} if metrics else metadata


def _description(result: Result) -> str:
    """Name a result in full: condition, ball, branch, samples, how far training was."""
    parts = [result.condition]
    if result.threat:
        parts.append(f"{result.threat.norm} {written_radius(result.threat.eps)}")
    parts += [f"{result.branch} branch"] if result.branch else []
    return f"{', '.join(parts)}, n={result.accuracy.n}{mark_of(result.training)}"


def _network(measured: MeasuredRun) -> str:
    recipe = measured.recipe
    branches = sorted({result.branch for result in measured.results if result.branch})
    low, high = recipe.threat.bounds
    return _table(
        ("", ""),
        [
            ("model", _with_options(recipe.model.name, recipe.model.options)),
            ("norm", _with_options(recipe.norm.name, recipe.norm.options)),
            *([("branches measured", ", ".join(branches))] if branches else []),
            ("input", f"images in [{low:g}, {high:g}]"),
            ("standardization", f"{recipe.model.standardize}, inside of the network"),
            ("weights", measured.weights),
        ],
    )


def _training(measured: MeasuredRun) -> str:
    recipe, threat = measured.recipe, measured.recipe.threat
    ball = f"{threat.norm}, eps {written_radius(threat.eps)}"
    rows = [
        ("data", recipe.data.name),
        ("augmentation", recipe.data.augment),
        ("objective", recipe.objective.name),
        ("threat of training", ball),
        ("attack of training", f"PGD, {recipe.attack.steps} steps"),
        ("epochs", str(measured.training or recipe.epochs)),
        ("seed", str(recipe.seed)),
    ]
    if measured.run.described:
        environment = measured.run.environment()
        rows.append(("trained on", environment.machine))
    return _table(("", ""), rows)


def _results(measured: MeasuredRun) -> str:
    if not measured.results:
        return "Nothing was measured of these weights: `advnorm evaluate` does."
    rows = [
        (
            result.condition,
            f"{result.threat.norm} {written_radius(result.threat.eps)}"
            if result.threat
            else "",
            result.branch or "",
            result.data if result.other else measured.recipe.data.name,
            f"{result.accuracy}{mark_of(result.training)}",
            "; ".join((*result.flags, *result.notes)),
        )
        for result in measured.results
    ]
    head = ("condition", "ball", "branch", "data", "accuracy [95% interval]", "remarks")
    return _table(head, rows)


def _audits(measured: MeasuredRun) -> str:
    return "\n".join(_audit_lines(measured)) or "No audit was run: `advnorm audit` does."


def _audit_lines(measured: MeasuredRun) -> Iterator[str]:
    for audit in measured.audits:
        branch = f", {audit.branch} branch" if audit.branch else ""
        ball = f"{audit.threat.norm} {written_radius(audit.threat.eps)}{branch}"
        strong = f"; {' + '.join(audit.suite)}: {audit.strong}" if audit.strong else ""
        flags = f"{len(audit.flagged)} of {len(audit.checks)} checks flagged"
        yield f"- Audit at {ball}, n={audit.n}: {flags}{strong}{mark_of(audit.training)}"
        for flag in audit.flags:
            yield f"  - {_plain(flag)}"


def _with_options(name: str, options: dict[str, Any]) -> str:
    chosen = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{name} ({chosen})" if chosen else name


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_plain, line))} |" for line in lines)


def _plain(text: str) -> str:
    """Escape text that would end a table cell or begin HTML."""
    escaped = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return escaped
