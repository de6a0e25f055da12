"""Robustness over the epochs, for small and large learning rates (appendix K)."""

from collections.abc import Sequence
from functools import cache

from advnorm.papers.artefact import Job, artefact
from advnorm.papers.claims import Claim, more
from advnorm.papers.galloway2019.nets import CIFAR, vgg
from advnorm.recipe import Recipe
from advnorm.records import Scale

_EPOCHS: dict[Scale, tuple[int, ...]] = {
    "full": tuple(range(10, 151, 10)),
    "reduced": (50, 100, 150),
    "smoke": (10, 20),
}
_SHORTER = {"full": 1, "reduced": 10, "smoke": 10}
_EPS: dict[Scale, float] = {"full": 0.2 * 8 / 255, "reduced": 0.012, "smoke": 0.012}
_PGD = "bim-40+ratio=4/3"
_RATES = {"large": (0.1, 0.02), "small": (0.01, 0.01)}
"""At full, and where batches are smaller."""
_NORMS = {"Un": False, "BN": True}


@cache
def _recipe(
    scale: Scale, norm: str, rate: str, epoch: int, *, drops: bool, decay: float = 5e-4
) -> Recipe:
    """VGG8 with the weights of one epoch: the first epochs of a longer run.

    Rates fall by ten at epochs 60 and 120 of 150. Where not full, ten of the paper's epochs
    are one.
    """
    shorter, full = _SHORTER[scale], scale == "full"
    at = [60 / shorter, 120 / shorter]
    schedule = f"{{kind: piecewise, at: {at}}}" if drops else "{kind: constant}"
    every = {"full": 10, "reduced": 5, "smoke": 1}[scale]
    attacks = f"[clean, '{CIFAR[scale].noise}', fgsm, '{_PGD}']"
    return vgg(
        scale,
        8,
        f"optimizer={{rate: {_RATES[rate][0 if full else 1]}, weight_decay: {decay}}}",
        f"optimizer.schedule={schedule}",
        f"validation={{every: {every}, samples: 10, steps: 1}}",
        f"evaluation={{attacks: {attacks}, eps: [{_EPS[scale]}], weights: last}}",
        f"epochs={epoch // shorter}",
        *(["data.validation=0.002"] if full else []),
        norm=_NORMS[norm],
    )


def _curves(
    scale: Scale, label: str, rate: str, *, drops: bool, decay: float = 5e-4
) -> list[Job]:
    """Return each accuracy over the epochs, without batch norm and with it."""
    keys = {
        "Clean": "clean",
        "AWGN": CIFAR[scale].noise,
        "FGSM": f"fgsm_linf_{_EPS[scale]:.4g}",
        "PGD": f"{_PGD.replace('/', 'of')}_linf_{_EPS[scale]:.4g}",
        "Train": "epoch/train",
    }
    return [
        Job(
            f"{label}, {norm} {name}",
            _recipe(scale, norm, rate, epoch, drops=drops, decay=decay),
            {str(epoch): key},
        )
        for norm in _NORMS
        for epoch in _EPOCHS[scale]
        for name, key in keys.items()
    ]


@artefact(
    "galloway2019/figure16",
    "Accuracy over the epochs for a large and a small initial learning rate",
    x="epoch",
    y="accuracy, percent",
    columns=("150",),
    published={
        "large rate, Un Clean": ((90.4, 0.1),),
        "large rate, BN Clean": ((91.3, 0.1),),
        "small rate, Un Clean": ((88.7, 0.1),),
        "small rate, BN Clean": ((90.3, 0.1),),
    },
    claims=(
        Claim(
            "at the small rate, no batch norm is more robust at all epochs",
            tuple(
                more((f"small rate, Un {test}", epoch), (f"small rate, BN {test}", epoch))
                for test in ("AWGN", "FGSM", "PGD")
                for epoch in ("50", "100", "150")
            ),
        ),
        Claim(
            "it is at every tenth epoch",
            tuple(
                more(
                    (f"small rate, Un {test}", f"{epoch}"),
                    (f"small rate, BN {test}", f"{epoch}"),
                )
                for test in ("AWGN", "FGSM", "PGD")
                for epoch in _EPOCHS["full"]
            ),
            scales=("full",),
        ),
        Claim(
            "at the large rate it is from epoch 90 on, under noise too",
            tuple(
                more(
                    (f"large rate, Un {test}", f"{epoch}"),
                    (f"large rate, BN {test}", f"{epoch}"),
                )
                for test in ("AWGN", "FGSM", "PGD")
                for epoch in _EPOCHS["full"]
                if epoch >= 90
            ),
            scales=("full",),
        ),
        Claim(
            "at the large rate, it is once the rate has dropped",
            tuple(
                more((f"large rate, Un {test}", epoch), (f"large rate, BN {test}", epoch))
                for test in ("FGSM", "PGD")
                for epoch in ("100", "150")
            ),
        ),
        Claim(
            "batch norm is better on clean images at the end",
            tuple(
                more((f"{rate} rate, BN Clean", "150"), (f"{rate} rate, Un Clean", "150"))
                for rate in _RATES
            ),
        ),
    ),
)
def figure16(scale: Scale) -> Sequence[Job]:
    """VGG8 on CIFAR-10 for 150 epochs from rates 0.1 and 0.01, judged every ten epochs.

    PGD has 40 steps of eps / 30 at 8/255 of standardized pixels. Three seeds. Smoke: the
    first two points at the large rate.
    """
    rates = ("large",) if scale == "smoke" else tuple(_RATES)
    return [
        job for rate in rates for job in _curves(scale, f"{rate} rate", rate, drops=True)
    ]


@artefact(
    "galloway2019/figure17",
    "Accuracy over the epochs for a large learning rate that is never lowered",
    x="epoch",
    y="accuracy, percent",
    claims=(
        Claim(
            "batch norm is as robust as no batch norm (asked for: under 3 points less), or "
            "more: a negative result",
            tuple(
                more(("5e-4, BN PGD", epoch), ("5e-4, Un PGD", epoch), by=-3)
                for epoch in ("100", "150")
            ),
        ),
        Claim(
            "with twice the weight decay, no batch norm is more robust in the end",
            (more(("1e-3, Un PGD", "150"), ("5e-4, BN PGD", "150")),),
        ),
    ),
)
def figure17(scale: Scale) -> Sequence[Job]:
    """As Figure 16 at a constant rate of 0.1, with weight decay 5e-4 (a) and 1e-3 (b)."""
    decays = ("5e-4",) if scale == "smoke" else ("5e-4", "1e-3")
    return [
        job
        for decay in decays
        for job in _curves(scale, decay, "large", drops=False, decay=float(decay))
    ]
