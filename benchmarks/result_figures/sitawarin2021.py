"""sitawarin2021 at reduced scale."""

from dataclasses import replace

from result_figures.contents import (
    ACCURACY,
    PERCENT,
    Drawing,
    Part,
    Results,
    curves,
    ours_alone,
    panels,
    plane,
    row_over_columns,
)


def gamma(results: Results) -> Drawing:
    """sitawarin2021, Figure 5: the weight of the clean loss."""
    record = results.record("sitawarin2021/figure5-reduced")
    lines = [
        row_over_columns(record, row, n) for n, row in enumerate(("Clean", "PGD", "AA"))
    ]
    part = Part(
        "", "gamma, the weight of the clean loss", ACCURACY, tuple(lines), y_range=PERCENT
    )
    return Drawing(
        "sitawarin2021-gamma",
        "sitawarin2021.md",
        "Mixed adversarial training over the weight of the clean loss (Figure 5)",
        (part,),
        height=2.6,
    )


def trade_off(results: Results) -> Drawing:
    """sitawarin2021, Figures 2, 3 and 6: clean accuracy against robust accuracy."""
    record = results.record("sitawarin2021/figure2-reduced")
    columns = ("Clean", "AA")
    kl = [f"MAT-Cat-0.5 + KL-{beta}" for beta in ("0.4", "0.5", "1", "4")]
    mat = [f"MAT-Cat-{share}" for share in ("0.1", "0.25", "0.5")]
    series = (
        plane(record, "MAT-Cat + KL over beta", kl, columns, 2),
        plane(record, "MAT-Cat over gamma", mat, columns, 1),
        plane(record, "TRADES-Cat-6", ["TRADES-Cat-6"], columns, 0),
    )
    best = [
        (results.record(f"sitawarin2021/{figure}-reduced"), radius)
        for figure, radius in (("figure3", "16/255"), ("figure6", "8/255"))
    ]
    rows = {"MAT-Cat + DBN + KL-1": 3, "MAT-Cat-0.5": 1, "TRADES-Seq-6": 5}
    parts = [Part("16/255, methods over their weights (Figure 2)", "", "AA, %", series)]
    for other, radius in best:
        names = (f"{radius} Clean", f"{radius} AA")
        points = tuple(plane(other, row, [row], names, s) for row, s in rows.items())
        x = "clean accuracy, %" if radius == "8/255" else ""
        number = "6" if radius == "8/255" else "3"
        parts.append(Part(f"{radius} (Figure {number})", x, "AA, %", points))
    ours = [replace(p, series=tuple(ours_alone(s) for s in p.series)) for p in parts]
    return Drawing(
        "sitawarin2021-trade-off",
        "sitawarin2021.md",
        "Clean accuracy against that under the strong attack (Figures 2, 3 and 6)",
        tuple(ours),
        height=1.9,
    )


def statistics_lag(results: Results) -> Drawing:
    """sitawarin2021, Figure 4: batches against running statistics."""
    record = results.record("sitawarin2021/figure4-reduced")
    parts = []
    for row, x in (("MAT-Seq-0.25", ""), ("MAT-Cat-0.25", "step")):
        (panel,) = panels(record, f"{row}: Batch to running statistics")
        series = tuple(curves(panel, {"clean": 0, "adversarial": 1}))
        parts.append(Part(row, x, "squared distance", series, log_y=True))
    return Drawing(
        "sitawarin2021-statistics-lag",
        "sitawarin2021.md",
        "Distance of the batches from the running statistics over training (Figure 4)",
        tuple(parts),
        height=1.9,
    )


def clouds(results: Results) -> Drawing:
    """sitawarin2021, Figure 1: inputs of the last norm."""
    record = results.record("sitawarin2021/figure1-reduced")
    styles = {"clean": 0, "pgd-1": 1}
    parts = []
    for row in record.rows:
        for place, name in ((2, "middle norm"), (3, "last norm")):
            (panel,) = panels(record, f"{row}: Features at place {place} of 3")
            series = [replace(s, line="", marker=True) for s in curves(panel, styles)]
            fewer = tuple(replace(s, x=s.x[::3], y=s.y[::3]) for s in series)
            parts.append(
                Part(f"{row.removeprefix('MAT-Cat-0.5 + ')}, {name}", "", "", fewer)
            )
    return Drawing(
        "sitawarin2021-clouds",
        "sitawarin2021.md",
        "Inputs of two norms in two dimensions (Figure 1)",
        tuple(parts),
        height=1.8,
        columns=2,
        note="Every third of 200 images.",
    )
