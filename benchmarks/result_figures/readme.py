"""README's figure."""

from dataclasses import replace

from result_figures.contents import (
    ATTACKED,
    PERCENT,
    Drawing,
    Part,
    Plotted,
    Results,
    in_rows,
    named,
)


def cost_or_help(results: Results) -> Drawing:
    """README's figure: what batch norm does to robustness, in two kinds of training."""
    plain = results.record("galloway2019/table6-full")
    trained = results.record("sridhar2021/table5-reduced")
    widths, sizes = ("28", "56", "84"), ("SM-CNN", "MD-CNN", "LG-CNN")

    def part(title: str, lists: tuple[Plotted, Plotted], names: tuple[str, ...]) -> Part:
        without = [replace(each, published=()) for each in lists]
        return Part(
            title,
            ATTACKED,
            "network",
            tuple(without),
            named(names),
            rows=True,
            x_range=PERCENT,
        )

    clean = (
        in_rows(plain, "no norm", [(w, "eps 0.1") for w in widths], 0),
        in_rows(plain, "batch norm", [(f"{w}, batch norm", "eps 0.1") for w in widths], 1),
    )
    robust = (
        in_rows(trained, "no norm", [(s, "PGD") for s in sizes], 0),
        in_rows(trained, "batch norm", [(f"{s}, BN", "PGD") for s in sizes], 1),
    )
    return Drawing(
        name="cost-or-help",
        page="README.md",
        title="Batch norm costs a network robustness, or adds it: it depends on training",
        parts=(
            part(
                "Trained on clean images: batch norm costs robustness",
                clean,
                tuple(f"{w}x{w} pixels" for w in widths),
            ),
            part(
                "Trained against PGD: batch norm adds robustness",
                robust,
                ("small CNN", "medium CNN", "large CNN"),
            ),
        ),
        height=1.7,
        variants=("light", "dark"),
        note="Accuracy under attack, means of three seeds, bars of two standard errors.",
    )
