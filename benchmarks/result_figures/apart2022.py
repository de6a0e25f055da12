"""apart2022 at reduced scale."""

from result_figures.contents import (
    PERCENT,
    Drawing,
    Part,
    Plotted,
    Results,
    ours_alone,
    row_over_columns,
)


def perturbations(results: Results) -> Drawing:
    """apart2022, Figure 1: perturbed statistics in training."""
    record = results.record("apart2022/figure1-reduced")
    lines = [row_over_columns(record, row, n) for n, row in enumerate(record.rows)]
    part = Part("", record.x, record.y, tuple(lines), y_range=PERCENT)
    return Drawing(
        "apart2022-perturbations",
        "apart2022.md",
        "Training accuracy under random and adversarial statistics (Figure 1)",
        (part,),
        height=2.7,
    )


def perturbed_tests(results: Results) -> Drawing:
    """apart2022, Figure 2: perturbed statistics in the test."""
    record = results.record("apart2022/figure2-reduced")
    names = {
        "standard 1.00x": "standard, 1x",
        "standard 2.00x": "standard, 2x",
        "N=128, eps 0.1, n=1": "APART, eps 0.1, n=1",
        "N=128, eps 0.1, n=16": "APART, eps 0.1, n=16",
        "N=128, eps 0.2, n=8": "APART, eps 0.2, n=8",
        "N=128, eps 0.4, n=8": "APART, eps 0.4, n=8",
    }

    def lines(kind: str) -> tuple[Plotted, ...]:
        each = (
            row_over_columns(record, f"{row}: {kind}", n, name)
            for n, (row, name) in enumerate(names.items())
        )
        return tuple(ours_alone(line) for line in each)

    return Drawing(
        "apart2022-perturbed-tests",
        "apart2022.md",
        "Test accuracy with perturbed batch-norm statistics (Figure 2)",
        (
            Part("Perturbed means", "", record.y, lines("mean"), y_range=(0.0, 50.0)),
            Part(
                "Perturbed deviations",
                record.x,
                record.y,
                lines("deviation"),
                y_range=(0.0, 50.0),
            ),
        ),
        height=2.3,
    )
