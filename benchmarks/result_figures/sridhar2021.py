"""sridhar2021 at reduced scale, and certified training on MNIST."""

from dataclasses import replace

from result_figures.contents import (
    ACCURACY,
    PERCENT,
    Drawing,
    Part,
    Plotted,
    Results,
    curves,
    in_rows,
    named,
    panels,
)


def smoothness(results: Results) -> Drawing:
    """sridhar2021, Figure 1: gradients and curvature over training."""
    record = results.record("sridhar2021/figure1-reduced")
    kinds = {
        "PGD-AT": (0, "-"),
        "PGD-AT, BN": (1, "-"),
        "IBP": (0, "--"),
        "IBP, BN": (1, "--"),
    }
    parts = []
    for title, y, x in (
        ("Gradient norm", "gradient norm", ""),
        ("Largest Hessian eigenvalue", "eigenvalue", "step"),
    ):
        series = []
        for row, (style, line) in kinds.items():
            (panel,) = panels(record, f"{row}: {title} over training")
            series += [
                replace(s, name=row) for s in curves(panel, {"average": style}, line)
            ]
        parts.append(Part(title, x, y, tuple(series), log_y=True))
    return Drawing(
        "sridhar2021-smoothness",
        "sridhar2021.md",
        "Gradient norm and curvature while PGD-AT and IBP train (Figure 1)",
        tuple(parts),
        height=2.2,
        note="The first seed, running averages.",
    )


def sizes(results: Results) -> Drawing:
    """sridhar2021, Tables 5 and 6: three sizes of CNNs."""
    trained = results.record("sridhar2021/table5-reduced")
    bounded = results.record("sridhar2021/table6-reduced")
    names = ("small", "medium", "large")
    rows = [f"{size}-CNN" for size in ("SM", "MD", "LG")]

    def pair(record_rows: list[tuple[list[str], str]], column: str) -> tuple[Plotted, ...]:
        series = []
        for style, (which, name) in enumerate(record_rows):
            record = bounded if "IBP" in which[0] else trained
            series.append(in_rows(record, name, [(row, column) for row in which], style))
        return tuple(series)

    def part(title: str, x: str, series: tuple[Plotted, ...]) -> Part:
        return Part(title, x, "size", series, named(names), rows=True, x_range=PERCENT)

    plain = [(rows, "no norm"), ([f"{row}, BN" for row in rows], "batch norm")]
    ibp = [
        ([f"{row}, IBP" for row in rows], "no norm"),
        ([f"{row}, IBP, BN" for row in rows], "batch norm"),
    ]
    return Drawing(
        "sridhar2021-sizes",
        "sridhar2021.md",
        "PGD-AT and IBP of three CNNs with and without batch norm (Tables 5 and 6)",
        (
            part("PGD-AT: under PGD", "", pair(plain, "PGD")),
            part("IBP: under PGD", "", pair(ibp, "PGD")),
            part("IBP: verified", ACCURACY, pair(ibp, "IBPV")),
        ),
        height=1.4,
    )


def certified(results: Results) -> Drawing:
    """Certified training on MNIST: three accuracies of six runs, with 95% intervals."""
    names = {
        "ibp_none_short": "IBP, none, 10",
        "ibp_none_30": "IBP, none, 30",
        "ibp_short": "IBP, batch, 10",
        "ibp_30": "IBP, batch, 30",
        "crown_ibp_none_short": "CROWN-IBP, none, 10",
        "crown_ibp_none_30": "CROWN-IBP, none, 30",
    }
    keys = {"verified": "ibp_linf_0.3", "PGD-200": "pgd-200_linf_0.3", "clean": "clean"}
    series = []
    for style, (name, key) in zip((2, 1, 0), keys.items(), strict=True):
        tested = [results.run(f"certified-mnist/{run}").result(key) for run in names]
        accuracies = [result.accuracy for result in tested if result is not None]
        half = tuple(50 * (a.interval[1] - a.interval[0]) for a in accuracies)
        x = tuple(100 * a.fraction for a in accuracies)
        places = tuple(map(float, range(len(names))))
        series.append(Plotted(name, x, places, x_error=half, style=style, line=""))
    ticks = named(tuple(names.values()))
    part = Part("", ACCURACY, "training, norm, epochs", tuple(series), ticks, rows=True)
    return Drawing(
        "certified-mnist",
        "certified-mnist.md",
        "Verified, PGD-200 and clean accuracy of certified training on MNIST at 0.3",
        (part,),
        height=2.9,
        note="One seed, 10,000 test images, bars: 95% intervals.",
    )
