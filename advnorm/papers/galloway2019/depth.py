r"""How deep a fully connected network may be, by batch size (Figure 2, appendix E.3)."""

from collections.abc import Mapping, Sequence
from itertools import product

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, Part, above, more, within
from advnorm.papers.galloway2019.nets import PLAIN_SGD
from advnorm.papers.numbers import CLEAN, NumberSource, ResultNumber
from advnorm.recipe import (
    DataSpec,
    EvaluationSpec,
    EvaluationThreatSpec,
    ModelSpec,
    NormSpec,
    OptimizerSpec,
    Recipe,
    RecipeChanges,
    ThreatSpec,
    ValidationSpec,
)
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
_LARGE = (50, 100, 150, 200, 250)
"""The batches of Figure 6 at full."""
_DEVIATION = 0.3081
"""MNIST's: the unit of standardized pixels."""
_NOISES: dict[Scale, str] = {
    "full": f"noise-{0.25 * _DEVIATION:g}+unclipped",
    "reduced": "noise-0.25",
    "smoke": "noise-0.25",
}
_BIM = "bim-20+ratio=2"
_EPOCHS: dict[Scale, dict[int, int]] = {
    "full": {10: 10, 40: 40},
    "reduced": {10: 5, 40: 10},
    "smoke": {10: 2, 40: 4},
}
"""Epochs that stand for the paper's."""
_LR: dict[Scale, float] = {"full": 1e-5, "reduced": 15e-5, "smoke": 1e-3}
"""Learning rate for each sample of a batch."""
_SIZES: dict[Scale, RecipeChanges] = {
    "full": {
        "data": DataSpec(validation=0.002),
        "threat": ThreatSpec(bounds=(-1, 2)),
    },
    "reduced": {"data": DataSpec(train=4000, test=500)},
    "smoke": {"data": DataSpec(name="digits", train=100, test=20)},
}


def _row(depth: int, batch: int, *, norm: bool) -> str:
    return f"{depth} layers, batches of {batch}{', batch norm' if norm else ''}"


def _recipe(scale: Scale, depth: int, batch: int, *, norm: bool, epochs: int) -> Recipe:
    """Layers of 384 ReLUs on MNIST by SGD without momentum, rate 1e-5 a sample, c = 1e-3.

    The weights begin as He's, without which 25 layers do not train unnormalized; the paper
    does not state it. "Momentum disabled" is taken to be that of SGD. Reduced: width 128,
    4,000 images, 5 or 10 epochs for 10 or 40, and 15 times the rate, so that rate times
    steps, the way that weights can go, is half of that of 10 epochs. At full neither noise
    nor attack is clipped to [0, 1], as in Tables 6 and 7.
    """
    width = {"full": 384, "reduced": 128, "smoke": 16}[scale]
    base = PLAIN_SGD.replace(
        name="galloway2019.depth",
        data=DataSpec(name="mnist"),
        model=ModelSpec(
            name="mlp", options={"width": width, "depth": depth, "start": "he"}
        ),
        optimizer=OptimizerSpec(lr=_LR[scale] * batch),
        batch_size=batch,
        epochs=_EPOCHS[scale][epochs],
        threat=ThreatSpec(eps=0.1),
        validation=ValidationSpec(every={"full": 10, "reduced": 5, "smoke": 2}[scale]),
        evaluation=EvaluationSpec(
            conditions=("clean", _NOISES[scale], _BIM),
            threat=EvaluationThreatSpec(eps=(0.03,)),
        ),
    )
    if norm:
        base = base.replace(norm=NormSpec(name="batch", options={"eps": 1e-3}))
    return base.replace(**_SIZES[scale])


def _jobs(
    scale: Scale,
    epochs: dict[bool, int],
    numbers: Mapping[str, NumberSource],
    *,
    sizes: Sequence[tuple[int, int]],
    label: str = "",
) -> list[Job]:
    """Return a row for each depth and batch size, with batch norm and without."""
    return [
        Job(
            f"{label}{_row(depth, batch, norm=norm)}",
            _recipe(scale, depth, batch, norm=norm, epochs=epochs[norm]),
            numbers,
        )
        for norm, (depth, batch) in product((True, False), sizes)
    ]


def _noise_numbers(scale: Scale) -> dict[str, NumberSource]:
    return {"Clean": CLEAN, "Noise": ResultNumber(_NOISES[scale])}


def _falls(column: str, depths: Sequence[int], label: str, small: int) -> tuple[Part, ...]:
    """Claim that with batch norm accuracy falls from small batches to those of 250."""
    return tuple(
        more(
            (f"{label}{_row(depth, small, norm=True)}", column),
            (f"{label}{_row(depth, 250, norm=True)}", column),
        )
        for depth in depths
    )


def _stays(column: str, label: str, batches: tuple[int, int]) -> Part:
    """Claim that without batch norm accuracy is within 5 points at two batch sizes."""
    first, second = (f"{label}{_row(10, batch, norm=False)}" for batch in batches)
    return within((first, column), (second, column), 5)


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
            _falls("BIM", (10,), "", 20),
        ),
        Claim(
            "with batch norm, it falls so at 15, 20 and 25 layers too",
            _falls("BIM", (15, 20, 25), "", 20),
            scales=("full",),
        ),
        Claim(
            "without batch norm it does not fall as batches grow (asked for: under 5 "
            "points, at 10 layers)",
            (_stays("BIM", "", (20, 250)),),
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

    A map of colours in the paper. Its section has noise of variance 1/16; of which pixels,
    it does not say for MNIST: at full of standardized ones, as in Table 6 (a deviation of
    0.077 in [0, 1]), elsewhere a deviation of 0.25 in [0, 1], clipped. It prints neither
    the radius (0.03 here, which is the 0.1 of its Table 6 in standardized pixels, by 20
    steps of 0.003), nor which depths and batch sizes were trained: depths 10 to 60 in steps
    of 5. ``advnorm diagnose RUN trainable_depth`` shows the theoretical limit, its dashed
    line.
    """
    numbers = _noise_numbers(scale) | {"BIM": ResultNumber(_BIM, eps=0.03)}
    sizes = list(product(_DEPTHS[scale], _BATCHES[scale]))
    return _jobs(scale, {True: 10, False: 40}, numbers, sizes=sizes)


@artefact(
    "galloway2019/figure6",
    "Accuracy over depth and batch size after 10 and 40 epochs",
    claims=(
        Claim(
            "after 10 epochs networks with batch norm reach more clean accuracy (asked "
            "for: at 10 layers)",
            tuple(
                more(
                    (f"10 epochs, {_row(10, batch, norm=True)}", "Clean"),
                    (f"10 epochs, {_row(10, batch, norm=False)}", "Clean"),
                )
                for batch in (50, 250)
            ),
        ),
        Claim(
            "after 40 epochs more configurations reach a higher clean accuracy without "
            "batch norm (asked for: 25 and 40 layers, batches of 50)",
            tuple(
                more(
                    (f"40 epochs, {_row(depth, 50, norm=False)}", "Clean"),
                    (f"40 epochs, {_row(depth, 50, norm=True)}", "Clean"),
                )
                for depth in (25, 40)
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
        Claim(
            "after 10 epochs with batch norm, accuracy under noise falls as batches grow, "
            "at 10 layers",
            _falls("Noise", (10,), "10 epochs, ", 50),
        ),
        Claim(
            "with batch norm, noisy accuracy falls so at 15, 20 and 25 layers too",
            _falls("Noise", (15, 20, 25), "10 epochs, ", 50),
            scales=("full",),
        ),
        Claim(
            "without batch norm neither clean nor noisy accuracy depends on the batch size "
            "(asked for: under 5 points apart, at 10 layers)",
            tuple(
                _stays(column, "10 epochs, ", batches)
                for column in ("Clean", "Noise")
                for batches in ((50, 250), (250, 50))
            ),
        ),
    ),
)
def figure6(scale: Scale) -> Sequence[Job]:
    """Evaluate the networks of Figure 2 after 10 and after 40 epochs, three seeds.

    The shorter runs are the beginnings of the longer ones. The paper shows 10 to 50 layers
    and batches of 50 to 250. It calls Figure 2 a version of (a), 10 epochs, though the
    networks without batch norm have 40 there.
    """
    numbers = _noise_numbers(scale)
    depths = [depth for depth in _DEPTHS[scale] if depth <= 50]
    sizes = list(product(depths, _LARGE if scale == "full" else _BATCHES[scale]))
    return [
        job
        for epochs in (10, 40)
        for job in _jobs(
            scale,
            {True: epochs, False: epochs},
            numbers,
            sizes=sizes,
            label=f"{epochs} epochs, ",
        )
    ]
