r"""How deep a fully connected network may be, by batch size (Figure 2, appendix E.3)."""

from collections.abc import Sequence
from itertools import product

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, above, more
from advnorm.recipe import Recipe, override
from advnorm.records import Scale

_DEPTHS: dict[Scale, tuple[int, ...]] = {
    "full": tuple(range(10, 61, 5)),
    "reduced": (10, 25, 40),
    "smoke": (10,),
}
_BATCHES: dict[Scale, tuple[int, ...]] = {
    "full": (5, 10, 20, 50, 100, 150, 200, 250),
    "reduced": (20, 50, 250),
    "smoke": (10, 50),
}
_NOISE, _BIM = "noise-0.25", "bim-20+ratio=2"


def _row(depth: int, batch: int, *, norm: bool) -> str:
    return f"{depth} layers, batches of {batch}{', batch norm' if norm else ''}"


def _recipe(scale: Scale, depth: int, batch: int, *, norm: bool, epochs: int) -> Recipe:
    """Layers of 384 ReLUs on MNIST by SGD without momentum, rate 1e-5 a sample, c = 1e-3.

    The start is He's, without which 25 layers do not train unnormalized; the paper does not
    state it. "Momentum disabled" is taken to be that of SGD. Reduced: width 128, 4,000
    images, 5 or 10 epochs for 10 or 40, and 15 times the rate, so that rate times steps,
    the way that weights can go, is half of that of 10 epochs.
    """
    sizes = {
        "full": [
            f"epochs={epochs}",
            f"optimizer.rate={1e-5 * batch}",
            "data.validation=0.002",
        ],
        "reduced": [
            "data={name: mnist, train: 4000, test: 500}",
            f"epochs={5 if epochs == 10 else 10}",
            f"optimizer.rate={15e-5 * batch}",
        ],
        "smoke": [
            "data={name: digits, train: 100, test: 20}",
            f"epochs={2 if epochs == 10 else 4}",
            f"optimizer.rate={1e-3 * batch}",
        ],
    }
    width = {"full": 384, "reduced": 128, "smoke": 16}[scale]
    every = {"full": 10, "reduced": 5, "smoke": 2}[scale]
    options = f"{{width: {width}, depth: {depth}, start: he}}"
    return override(
        Recipe(name="galloway2019.depth"),
        [
            "data.name=mnist",
            f"model={{name: mlp, options: {options}}}",
            "norm={name: batch, options: {eps: 1e-3}}" if norm else "norm.name=none",
            "objective.name=standard",
            "optimizer={name: sgd, momentum: 0}",
            f"batch_size={batch}",
            "threat.eps=0.1",
            f"validation={{every: {every}, samples: 10, steps: 1}}",
            f"evaluation.attacks=[clean, {_NOISE}, '{_BIM}']",
            "evaluation.eps=[0.03]",
            "evaluation.weights=last",
            *sizes[scale],
        ],
    )


def _jobs(
    scale: Scale, epochs: dict[bool, int], numbers: dict[str, str], label: str = ""
) -> list[Job]:
    """Return a row for each depth and batch size, with batch norm and without."""
    return [
        Job(
            f"{label}{_row(depth, batch, norm=norm)}",
            _recipe(scale, depth, batch, norm=norm, epochs=epochs[norm]),
            numbers,
        )
        for norm, depth, batch in product((True, False), _DEPTHS[scale], _BATCHES[scale])
    ]


@artefact(
    "galloway2019/figure2",
    "Accuracy over depth and batch size, with and without batch norm",
    claims=(
        Claim(
            "batch norm limits the trainable depth: 40 layers train better without it",
            (
                more(
                    (_row(40, 250, norm=False), "Clean"),
                    (_row(40, 250, norm=True), "Clean"),
                ),
                more(
                    (_row(40, 50, norm=False), "Clean"), (_row(40, 50, norm=True), "Clean")
                ),
            ),
        ),
        Claim(
            "with batch norm 25 layers train in large batches, and worse in small ones",
            (
                above(_row(25, 250, norm=True), "Clean", 50),
                more(
                    (_row(25, 250, norm=True), "Clean"), (_row(25, 20, norm=True), "Clean")
                ),
            ),
        ),
        Claim(
            "with batch norm, accuracy under BIM falls as batches grow, at 10 layers",
            (more((_row(10, 20, norm=True), "BIM"), (_row(10, 250, norm=True), "BIM")),),
        ),
        Claim(
            "at 10 layers the networks without batch norm are more robust to BIM",
            tuple(
                more((_row(10, b, norm=False), "BIM"), (_row(10, b, norm=True), "BIM"))
                for b in (50, 250)
            ),
        ),
    ),
)
def figure2(scale: Scale) -> Sequence[Job]:
    """10 epochs with batch norm, 40 without, as these converge later.

    A map of colours in the paper, which prints neither the noise (deviation 0.25 here, as
    elsewhere in it), nor the radius (0.03 here, which is the 0.1 of its Table 6 in
    standardized pixels, by 20 steps of 0.003), nor which depths and batch sizes were
    trained: depths 10 to 60 in steps of 5. ``advnorm diagnose RUN trainable_depth`` shows
    the theoretical limit, its dashed line.
    """
    numbers = {"Clean": "clean", "Noise": _NOISE, "BIM": f"{_BIM}_linf_0.03"}
    return _jobs(scale, {True: 10, False: 40}, numbers)


@artefact(
    "galloway2019/figure6",
    "Accuracy over depth and batch size after 10 and 40 epochs",
    claims=(
        Claim(
            "after 40 epochs, 25 layers without batch norm are better than after 10",
            (
                more(
                    (f"40 epochs, {_row(25, 250, norm=False)}", "Clean"),
                    (f"10 epochs, {_row(25, 250, norm=False)}", "Clean"),
                ),
            ),
        ),
        Claim(
            "after 40 epochs too, 40 layers train better without batch norm",
            (
                more(
                    (f"40 epochs, {_row(40, 250, norm=False)}", "Clean"),
                    (f"40 epochs, {_row(40, 250, norm=True)}", "Clean"),
                ),
            ),
        ),
    ),
)
def figure6(scale: Scale) -> Sequence[Job]:
    """Judge the networks of Figure 2 after 10 and after 40 epochs, three seeds.

    The shorter runs are the beginnings of the longer ones.
    """
    numbers = {"Clean": "clean", "Noise": _NOISE}
    return [
        job
        for epochs in (10, 40)
        for job in _jobs(
            scale, {True: epochs, False: epochs}, numbers, f"{epochs} epochs, "
        )
    ]
