"""galloway2019 at full scale."""

from result_figures.contents import (
    ACCURACY,
    PERCENT,
    Drawing,
    Part,
    Place,
    Plotted,
    Results,
    over,
    row_over_columns,
)


def image_size(results: Results) -> Drawing:
    """Accuracy over the size of the images, with and without batch norm."""
    record = results.record("galloway2019/table6-full")
    widths = (28, 56, 84)

    def line(suffix: str, column: str, style: int) -> Plotted:
        name = "batch norm" if suffix else "no norm"
        places = [Place(w, f"{w}{suffix}", column) for w in widths]
        return over(record, name, places, style)

    parts = tuple(
        Part(
            title,
            "width of the images, pixels" if column == "eps 0.1" else "",
            ACCURACY,
            (line("", column, 0), line(", batch norm", column, 1)),
            tuple((float(w), str(w)) for w in widths),
            y_range=PERCENT,
        )
        for title, column in (("Noise", "Noise"), ("BIM, eps 0.1", "eps 0.1"))
    )
    return Drawing(
        "galloway2019-image-size",
        "galloway2019-full.md",
        "Accuracy of a perceptron over the size of its images (Table 6)",
        parts,
        height=1.9,
    )


def attacked_loss(results: Results) -> Drawing:
    """Tables 13 and 14: attacked loss over the size of the images, relative to width 28."""
    linear = results.record("galloway2019/table13-full")
    perceptron = results.record("galloway2019/table14-full")
    loss, wide, narrow = "loss eps 0.1", (56, 84, 112), (56, 84)
    upper = Part(
        "Linear model (Table 13)",
        "",
        "loss, relative",
        (
            over(linear, "no decay", [Place(w, f"{w}", loss) for w in wide], 0),
            over(linear, "weight decay", [Place(w, f"{w}, decay", loss) for w in wide], 2),
            Plotted(
                "predicted: linear", (28, 112), (1, 4), style=7, line="--", marker=False
            ),
        ),
        tuple((float(w), str(w)) for w in (28, *wide)),
    )
    lower = Part(
        "Perceptron (Table 14)",
        "width of the images, pixels",
        "loss, relative",
        (
            over(perceptron, "no norm", [Place(w, f"{w}", loss) for w in narrow], 0),
            over(
                perceptron,
                "batch norm",
                [Place(w, f"{w}, batch norm", loss) for w in (28, *narrow)],
                1,
            ),
        ),
        upper.ticks,
    )
    return Drawing(
        "galloway2019-attacked-loss",
        "galloway2019-full.md",
        "Loss under attack over the size of the images (Tables 13 and 14)",
        (upper, lower),
        height=2.2,
    )


def constant_or_decay(results: Results) -> Drawing:
    """Figure 3a: the constant c of batch norm beside weight decay."""
    record = results.record("galloway2019/figure3-full")
    constants, decays = (0.001, 0.01, 0.1, 1, 20), (0.001, 0.01, 0.1, 1, 9)
    columns = {"FGSM": "-", "AWGN": "--", "Test": ":"}
    names = {"FGSM": "FGSM", "AWGN": "noise", "Test": "clean"}

    def lines(row: str, values: tuple[float, ...], name: str, style: int) -> list[Plotted]:
        return [
            over(
                record,
                f"{name}, {names[column]}",
                [Place(value, f"{row}{value:g}", column) for value in values],
                style,
                line,
            )
            for column, line in columns.items()
        ]

    series = [
        *lines("BNGD c=", constants, "batch norm over c", 1),
        *lines("GD-L2 ", decays, "no norm over the decay", 0),
    ]
    part = Part("", "c, or weight decay", ACCURACY, tuple(series), log_x=True)
    return Drawing(
        "galloway2019-constant-or-decay",
        "galloway2019-full.md",
        "The constant c of batch norm, and weight decay (Figure 3a)",
        (part,),
        height=3.0,
    )


def tilt(results: Results) -> Drawing:
    """Figure 11: the tilting angle over c."""
    record = results.record("galloway2019/figure11-full")
    line = row_over_columns(record, "BNGD", 1, "batch norm")
    part = Part("", "c", "tilting angle, degrees", (line,), log_x=True, y_range=(0.0, 95.0))
    return Drawing(
        "galloway2019-tilt",
        "galloway2019-full.md",
        "The tilting angle of a batch-normalized linear model over c (Figure 11)",
        (part,),
        height=2.2,
    )
