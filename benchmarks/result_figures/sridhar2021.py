"""sridhar2021 at reduced scale, and certified training on MNIST."""

from dataclasses import replace

from advnorm.records import Reproduction
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
            if row not in record.rows:
                continue
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
    """sridhar2021, Table 5: PGD-AT of three sizes of CNNs."""
    record = results.record("sridhar2021/table5-reduced")
    part = _by_size(record, "", "under PGD", "PGD")
    title = "PGD-AT of three CNNs with and without batch norm (Table 5)"
    return Drawing("sridhar2021-sizes", "sridhar2021.md", title, (part,), height=1.4)


def certified_sizes(results: Results) -> Drawing:
    """sridhar2021, Table 6: IBP of three sizes of CNNs."""
    record = results.record("sridhar2021/table6-reduced")
    parts = (
        _by_size(record, ", IBP", "under PGD", "PGD"),
        _by_size(record, ", IBP", "verified", "IBPV"),
    )
    title = "IBP of three CNNs with and without batch norm (Table 6)"
    return Drawing(
        "sridhar2021-certified-sizes", "sridhar2021.md", title, parts, height=1.4
    )


def _by_size(record: Reproduction, method: str, title: str, column: str) -> Part:
    """Return a column for each size, without norm and with batch norm."""
    rows = [f"{size}-CNN{method}" for size in ("SM", "MD", "LG")]
    norms = {"no norm": rows, "batch norm": [f"{row}, BN" for row in rows]}
    series = tuple(
        in_rows(record, name, [(row, column) for row in each], style)
        for style, (name, each) in enumerate(norms.items())
    )
    ticks = named(("small", "medium", "large"))
    return Part(title, ACCURACY, "size", series, ticks, rows=True, x_range=PERCENT)


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
