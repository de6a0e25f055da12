"""A study as text: the answer, then its table."""

from collections.abc import Sequence

from advnorm.records import Study

CAPTION = (
    "Accuracies are in percent: the mean over seeds with its 95% interval (Student's t; of "
    "one seed, over its samples). Robust: robust under every attack of the evaluation. The "
    "false-robustness gap is the held-out PGD accuracy of training minus the robust "
    "accuracy. Times depend on the machine's load; memory is counted, not measured."
)


def ordered_labels(study: Study) -> list[str]:
    """Return the labels of the rows, the most robust first."""
    return sorted(
        study.rows,
        key=lambda k: (
            -study.rows[k].numbers[study.headline].mean
            if study.headline in study.rows[k].numbers
            else 1.0
        ),
    )


def table_of(study: Study) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows, the most robust first; * marks the Pareto front."""
    rows = []
    for label in ordered_labels(study):
        row = study.rows[label]
        cells = [str(row.numbers.get(column, "-")) for column in study.columns]
        mark = "*" if label in study.pareto else ""
        flagged = " !" if row.flags else ""
        rows.append([f"{label}{mark}{flagged}", *cells, str(len(row.seeds))])
    return [", ".join(study.over), *study.columns, "seeds"], rows


def notes_of(study: Study) -> list[str]:
    """Return what a reader of the table has to know."""
    notes = [f"left out: {label}: {why}" for label, why in study.skipped.items()]
    notes += [f"stopped early: {label}: {why}" for label, why in study.dropped.items()]
    notes += [f"failed: {name}: {why}" for name, why in study.failed.items()]
    notes += dict.fromkeys(row.note for row in study.rows.values() if row.note)
    for label, row in study.rows.items():
        notes += [f"of the {row.branch} branch: {label}"] if row.branch else []
        notes += [f"flagged: {label}: {flag}" for flag in row.flags]
    return notes


def study_text(study: Study) -> str:
    """Return the answer, the table and its notes."""
    head, rows = table_of(study)
    columns = [_pad(column) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    n = {x.n for row in study.rows.values() for x in row.numbers.values() if x.n}
    samples = f" n={'/'.join(map(str, sorted(n)))} test samples." if n else ""
    return "\n".join(
        [
            *study.answer,
            "",
            *lines,
            "",
            f"{CAPTION}{samples} *: no other row is better in both clean and robust.",
            *notes_of(study),
        ]
    )


def _pad(column: Sequence[str]) -> list[str]:
    return [cell.ljust(max(map(len, column))) for cell in column]
