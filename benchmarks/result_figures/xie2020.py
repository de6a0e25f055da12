"""xie2020 at reduced scale."""

from dataclasses import replace

from result_figures.contents import (
    ACCURACY,
    Drawing,
    Part,
    Plotted,
    Results,
    curves,
    panels,
    row_over_columns,
)


def clean_share(results: Results) -> Drawing:
    """xie2020, Figure 1."""
    record = results.record("xie2020/figure1-reduced")
    line = row_over_columns(record, "PGD-2000", 0)
    part = Part("", record.x, "PGD-2000 accuracy, %", (line,), y_range=(0.0, 45.0))
    return Drawing(
        "xie2020-clean-share",
        "xie2020.md",
        "Robustness over the share of clean images in training (Figure 1)",
        (part,),
        height=2.4,
    )


def pgd_steps(results: Results) -> Drawing:
    """xie2020, Figures 2 and 3 in one: accuracy over the steps of PGD."""
    record = results.record("xie2020/figure2-reduced")
    norms = results.record("xie2020/figure3-reduced")
    both = "100% adv + 100% clean"
    lines = [
        row_over_columns(record, "100% adv + 0% clean", 0, "adversarial images only"),
        row_over_columns(record, both, 1, "both, batch norm"),
        row_over_columns(record, f"{both}, ALP", 2, "both, batch norm, ALP"),
        row_over_columns(norms, f"MBN_adv, {both}", 3, "both, mixture norm"),
        row_over_columns(norms, f"MBN_adv, {both}, ALP", 4, "both, mixture norm, ALP"),
        row_over_columns(norms, f"GN, {both}", 5, "both, group norm"),
    ]
    ours = tuple(replace(line, published=()) for line in lines)
    papers = tuple(
        Plotted(
            line.name,
            tuple(x for x, _ in line.published),
            tuple(y for _, y in line.published),
            style=line.style,
            line=":",
        )
        for line in lines
    )
    steps = tuple((float(c), c) for c in ("10", "20", "50", "200", "500", "2000"))
    return Drawing(
        "xie2020-pgd-steps",
        "xie2020.md",
        "Accuracy over the steps of PGD (Figures 2 and 3)",
        (
            Part("Ours", "", ACCURACY, ours, steps, log_x=True, y_range=(0.0, 60.0)),
            Part(
                "The paper's, on ImageNet",
                "steps of PGD",
                ACCURACY,
                papers,
                steps,
                log_x=True,
                y_range=(0.0, 60.0),
            ),
        ),
        height=2.3,
    )


def branch_statistics(results: Results) -> Drawing:
    """xie2020, Figure 5: running statistics by channel."""
    record = results.record("xie2020/figure5-reduced")
    styles = {"running, clean": 0, "running, adversarial": 1, "batch 1, adversarial": 7}
    row = "MBN_adv, 100% adv + 100% clean"
    means, variances = panels(record, f"{row}: Channel mean", f"{row}: Channel variance")
    channel = "channel, drawn at random"
    return Drawing(
        "xie2020-branch-statistics",
        "xie2020.md",
        "Running statistics of the two branches of a mixture norm, by channel (Figure 5)",
        (
            Part("Mean", "", "mean", tuple(curves(means, styles))),
            Part(
                "Variance",
                channel,
                "variance",
                tuple(curves(variances, styles)),
            ),
        ),
        height=1.9,
    )
