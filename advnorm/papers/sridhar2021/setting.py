"""How sridhar2021 trains its CNNs (appendix B): PGD-AT and certified, with and without BN.

What the paper leaves open, and what is chosen: MNIST images are standardized as those of
CIFAR-10 are; MNIST has no validation set of its own, so a tenth of the training images is
held out there too; the attack of PGD-AT sees the running statistics; the robust accuracy
that chooses the epoch is that of PGD-10, or the verified one, at the radius of the tests.

``reduced``: narrow CNNs (on MNIST of 21, 32 and 52 thousand parameters), 3,000 images of
MNIST or 4,000 of CIFAR-10 at 16x16 (mirrored, not moved), batches of 50. Runs that Figure 1
watches are watched in the tables too, so that they are trained once.
"""

from typing import Literal, NamedTuple

from advnorm.numbers import parse_number
from advnorm.recipe import Recipe, override
from advnorm.records import Scale

Data = Literal["MNIST", "CIFAR-10"]
Size = Literal["SM", "MD", "LG"]
MODELS: dict[Size, str] = {"SM": "cnn_small", "MD": "cnn_medium", "LG": "cnn_large"}
WIDTHS: dict[Scale, dict[Data, tuple[int, int, int]]] = {
    "full": {"MNIST": (16, 32, 64), "CIFAR-10": (16, 32, 64)},
    "reduced": {"MNIST": (4, 6, 4), "CIFAR-10": (4, 6, 8)},
    "smoke": {"MNIST": (2, 2, 2), "CIFAR-10": (2, 2, 2)},
}
"""Of the small, medium and large CNN."""


class Budget(NamedTuple):
    """A radius to train with and the one to test at, as the paper writes them."""

    data: Data
    train: str
    test: str
    step: str = ""
    """Of PGD-AT."""

    @property
    def name(self) -> str:
        """As it heads a row."""
        return f"{self.data} {self.train}"

    def key(self, attack: str) -> str:
        """Name the result of an attack at the radius of the tests."""
        return f"{attack}_linf_{parse_number(self.test):.4g}"


MNIST = (
    Budget("MNIST", "0.2", "0.1", "0.01"),
    Budget("MNIST", "0.3", "0.2", "0.02"),
    Budget("MNIST", "0.4", "0.3", "0.02"),
)
CIFAR = (
    Budget("CIFAR-10", "8.8/255", "8/255", "2/255"),
    Budget("CIFAR-10", "11/255", "10/255", "3/255"),
    Budget("CIFAR-10", "17.6/255", "16/255", "4/255"),
)


def pgd_at(
    scale: Scale, budget: Budget, *, norm: str, size: Size = "LG", watch: bool = False
) -> Recipe:
    """Train on adversarial images alone (B.2): Adam, rate 1e-3, batches of 100.

    MNIST: 50 epochs, rate divided by 10 after 30 and 40, PGD-40; CIFAR-10: 80 epochs, 44
    and 66, PGD-10. ``reduced``: 6 and 8 epochs, rate 2e-3, PGD-5 in steps of eps / 2, and
    eps rises over the first third of the epochs: without that, these few steps leave every
    network without batch norm at chance.
    """
    mnist = budget.data == "MNIST"
    epochs = _EPOCHS[scale, budget.data]
    falls = (0.6, 0.8) if mnist else (0.55, 0.825)
    full = [f"attack={{steps: {40 if mnist else 10}, step_size: {budget.step}}}"]
    short = ["attack.steps=5", f"threat.schedule={{kind: ramp, last: {epochs / 3:.4g}}}"]
    return override(
        _common(scale, budget, size, norm),
        [
            "name=sridhar2021.pgd",
            "objective.name=pgd",
            f"optimizer={{name: adam, lr: {'1e-3' if scale == 'full' else '2e-3'}}}",
            f"optimizer.schedule={_falls(epochs, falls)}",
            f"epochs={epochs}",
            f"validation.eps={budget.test}",
            *(full if scale == "full" else short),
            *(_WATCH[scale] if watch else []),
        ],
    )


def certified(
    scale: Scale,
    budget: Budget,
    *,
    norm: str,
    size: Size = "LG",
    crown: bool = False,
    watch: bool = False,
) -> Recipe:
    """Train with IBP or CROWN-IBP (B.3): Adam, rate 5e-4, batches of 100, 200 epochs.

    The first 10 epochs are clean; until the 60th, eps rises and kappa falls to 1/2 (and
    CROWN-IBP's beta to 0, as in Zhang et al.); the rate falls tenfold after 130 and 190.
    ``reduced``: 12 epochs at rate 2e-3, in batches of 25; the ramp takes half of them, and
    the rate falls after 9 and 11.
    """
    epochs, full = _EPOCHS[scale, "IBP"], scale == "full"
    last = epochs * (0.3 if full else 0.5)
    ramp = f"kind: ramp, first: {epochs / 20:g}, last: {last:g}"
    beta = [
        "objective={name: crown_ibp, kappa: 1, beta: 1}",
        f"objective.beta_schedule={{{ramp}, start: 1, stop: 0}}",
    ]
    return override(
        _common(scale, budget, size, norm),
        [
            "name=sridhar2021.certified",
            *(beta if crown else ["objective={name: ibp, kappa: 1}"]),
            f"objective.kappa_schedule={{{ramp}, start: 1, stop: 0.5}}",
            f"threat.schedule={{{ramp}}}",
            f"optimizer={{name: adam, lr: {'5e-4' if full else '2e-3'}}}",
            f"optimizer.schedule={_falls(epochs, (0.65, 0.95) if full else (0.75, 0.92))}",
            f"epochs={epochs}",
            "validation.robust=ibp",
            f"validation.eps={budget.test}",
            *(_WATCH[scale] if watch else []),
            *(["batch_size=25", "monitor.every=40"] if scale == "reduced" else []),
        ],
    )


_EPOCHS = {
    ("full", "MNIST"): 50,
    ("full", "CIFAR-10"): 80,
    ("full", "IBP"): 200,
    ("reduced", "MNIST"): 6,
    ("reduced", "CIFAR-10"): 8,
    ("reduced", "IBP"): 12,
    ("smoke", "MNIST"): 1,
    ("smoke", "CIFAR-10"): 1,
    ("smoke", "IBP"): 2,
}
_DATA: dict[tuple[Scale, Data], str] = {
    ("full", "MNIST"): "data.name=mnist",
    ("full", "CIFAR-10"): "data={name: cifar10, augment: crop_flip}",
    ("reduced", "MNIST"): "data={name: mnist, train: 3000, test: 500}",
    ("reduced", "CIFAR-10"): "data={name: cifar10, size: 16, augment: flip, "
    "train: 4000, test: 500}",
    ("smoke", "MNIST"): "data={size: 16, train: 60, test: 20}",
    ("smoke", "CIFAR-10"): "data={size: 16, augment: crop_flip, train: 60, test: 20}",
}
_BATCH: dict[Scale, int] = {"full": 100, "reduced": 50, "smoke": 20}
_HELD_OUT: dict[Scale, list[str]] = {
    "full": ["validation.samples=null"],
    "reduced": ["validation={every: 2, samples: 200}"],
    "smoke": ["validation={every: 100, samples: 10, steps: 1}"],
}
_QUESTIONS = "questions: [gradient_norm, hessian, moments]"
_WATCH: dict[Scale, list[str]] = {
    "full": [f"monitor={{{_QUESTIONS}, every: 10}}"],
    "reduced": [
        f"monitor={{{_QUESTIONS}, every: 10, hessian_steps: 10, hessian_samples: 25}}"
    ],
    "smoke": [f"monitor={{{_QUESTIONS}, every: 1, hessian_steps: 3}}"],
}


def _common(scale: Scale, budget: Budget, size: Size, norm: str) -> Recipe:
    width = dict(zip(MODELS, WIDTHS[scale][budget.data], strict=True))[size]
    return override(
        Recipe(),
        [
            _DATA[scale, budget.data],
            f"model={{name: {MODELS[size]}, options: {{width: {width}}}}}",
            f"norm.name={norm}",
            f"threat.eps={budget.train}",
            f"evaluation.threat.eps=[{budget.test}]",
            f"batch_size={_BATCH[scale]}",
            *_HELD_OUT[scale],
        ],
    )


def _falls(epochs: int, shares: tuple[float, ...]) -> str:
    """Divide the rate by 10 after these shares of the epochs."""
    at = [round(epochs * share, 6) for share in shares]
    return f"{{kind: piecewise, at: {at}}}"
