"""galloway2019 at reduced scale."""

from dataclasses import replace

from result_figures.contents import (
    ACCURACY,
    PERCENT,
    Drawing,
    Part,
    Place,
    Plotted,
    Results,
    curves,
    in_rows,
    named,
    over,
    panels,
)


def depth(results: Results) -> Drawing:
    """Figure 2: accuracy over depth and batch size."""
    record = results.record("galloway2019/figure2-reduced")
    kinds = {"": ("no norm", 0), ", batch norm": ("batch norm", 1)}
    sizes = {20: ":", 50: "--", 250: "-"}

    def lines(column: str) -> tuple[Plotted, ...]:
        return tuple(
            over(
                record,
                f"{name}, batches of {size}",
                [
                    Place(d, f"{d} layers, batches of {size}{suffix}", column)
                    for d in (10, 25, 40)
                ],
                style,
                line,
            )
            for size, line in sizes.items()
            for suffix, (name, style) in kinds.items()
        )

    ticks = tuple((float(d), str(d)) for d in (10, 25, 40))
    return Drawing(
        "galloway2019-depth",
        "galloway2019.md",
        "Accuracy over depth, by batch size, with and without batch norm (Figure 2)",
        (
            Part("Clean", "", ACCURACY, lines("Clean"), ticks, y_range=PERCENT),
            Part("BIM", "layers", ACCURACY, lines("BIM"), ticks, y_range=(0.0, 60.0)),
        ),
        height=2.3,
    )


def circles(results: Results) -> Drawing:
    """Figure 8: two circles in a deep linear network, in mini-batches of 50."""
    record = results.record("galloway2019/figure8-full")
    titles = {
        "Input": "input",
        "At place 2 of 14": "layer 2",
        "At place 14 of 14": "layer 14",
    }
    classes = {
        "batch 1, class 0": 0,
        "batch 1, class 1": 1,
        "batch 2, class 0": 5,
        "batch 2, class 1": 4,
    }
    parts = []
    for title, name in titles.items():
        for row in ("batch norm", "no norm"):
            (panel,) = panels(record, f"{row}: {title}")
            series = [
                replace(each, line="", marker=True) for each in curves(panel, classes)
            ]
            parts.append(Part(f"{name}, {row}", "", "", tuple(series), equal=True))
    return Drawing(
        "galloway2019-circles",
        "galloway2019.md",
        "Two mini-batches of two circles at the start of a deep linear network (Figure 8)",
        tuple(parts),
        height=1.9,
        columns=2,
    )


def corruptions(results: Results) -> Drawing:
    """Table 8: corrupted digits."""
    record = results.record("galloway2019/table8-reduced")
    names = {"Per-img": 0, "BN": 1, "PGD": 2, "PGD BN": 3}
    series = [
        replace(
            in_rows(record, row, [(row, c) for c in record.columns], style), published=()
        )
        for row, style in names.items()
    ]
    part = Part("", ACCURACY, "corruption", tuple(series), named(record.columns), rows=True)
    return Drawing(
        "galloway2019-corruptions",
        "galloway2019.md",
        "Accuracy on corrupted digits, with and without batch norm and PGD (Table 8)",
        (part,),
        height=4.2,
    )
