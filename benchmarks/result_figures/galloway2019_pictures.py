"""galloway2019 at full scale: weights and images."""

from result_figures.contents import (
    Drawing,
    Part,
    Results,
    panels,
)


def tilt_weights(results: Results) -> Drawing:
    """Figures 10 and 11: the weights of linear models as pictures."""
    models = results.record("galloway2019/figure10-full")
    sweep = results.record("galloway2019/figure11-full")
    gd, per_image = panels(models, "GD: Weights", "GD, per-image: Weights")
    swept = [p for p in sweep.drawn if p.title == "BNGD: Weights"]
    upper = [
        gd.pictures[0].model_copy(update={"label": "centroids"}),
        gd.pictures[1].model_copy(update={"label": "no norm"}),
        per_image.pictures[1].model_copy(update={"label": "per image"}),
    ]
    lower = [
        panel.pictures[1].model_copy(update={"label": f"c = {c}"})
        for panel, c in zip(swept, sweep.columns, strict=True)
    ]
    return Drawing(
        "galloway2019-tilt-weights",
        "galloway2019-full.md",
        "Weights of linear models: a small c weighs pixels that hardly vary",
        (
            Part(
                "Nearest centroids, and without batch norm", "", "", pictures=tuple(upper)
            ),
            Part("With batch norm, over the constant c", "", "", pictures=tuple(lower)),
        ),
        height=0.4,
    )


def fooling(results: Results) -> Drawing:
    """Figure 12: fooling images."""
    record = results.record("galloway2019/figure12-full")
    names = {"L2": "L2 regularization", "BN": "batch norm", "Per-img": "per-image norm"}
    parts = [
        Part(
            names[row],
            "",
            "",
            pictures=tuple(
                p.model_copy(update={"label": p.label.split()[0]})
                for p in panels(record, f"{row}: Fooling images")[0].pictures
            ),
        )
        for row in record.rows
    ]
    return Drawing(
        "galloway2019-fooling",
        "galloway2019-full.md",
        "Noise that three LeNets take for a digit with over 90% confidence (Figure 12)",
        tuple(parts),
        height=0.42,
    )


def nearest_examples(results: Results) -> Drawing:
    """Figure 13: images and their nearest adversarial examples."""
    record = results.record("galloway2019/figure13-full")
    rows = []
    for row, name in {"L2": "L2 regularization", "BN": "batch norm"}.items():
        pictures = panels(record, f"{row}: Images and changes")[0].pictures
        changed = [
            p.model_copy(update={"label": p.label.split(", ")[-1].replace("L2 ", "")})
            for p in pictures[1:20:2]
        ]
        rows.append(
            Part(
                f"{name}: adversarial, and its L2 distance",
                "",
                "",
                (),
                (),
                pictures=tuple(changed),
            )
        )
    pictures = panels(record, "L2: Images and changes")[0].pictures
    clean = Part("Clean images and their class", "", "", pictures=pictures[:20:2])
    return Drawing(
        "galloway2019-nearest",
        "galloway2019-full.md",
        "Nearest adversarial examples of LeNet with and without batch norm (Figure 13)",
        (clean, *rows),
        height=0.42,
    )
