"""Held-out clean and robust accuracy, with the running statistics, during training."""

from typing import NamedTuple

import torch

from advnorm import ranks
from advnorm.attacks import NonFiniteGradientError
from advnorm.evaluation import (
    Condition,
    certificate_condition,
    parse_conditions,
    run_condition,
)
from advnorm.norms import Domain, route
from advnorm.progress import Quiet
from advnorm.records import Verdicts
from advnorm.training.build import Experiment
from advnorm.training.guards import NotFiniteError
from advnorm.training.stop import Stop

BATCH = 250


STRONG = "apgd_dlr-20"
STRONG_IN_L0 = "sigma_zero-20"
STRONGEST = (STRONG, STRONG_IN_L0)
FEW = 64
"""Samples under the stronger attack: enough for an alarm, a few percent of the time."""


class Validated(NamedTuple):
    """Verdicts on clean images, under PGD or by interval bounds, and on a few stronger."""

    clean: Verdicts
    robust: Verdicts
    strong: Verdicts = Verdicts()


class _Stopping(Quiet):
    """Lets a signal end a validation between two batches."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def update(self, done: int, total: int, text: str) -> None:
        """Raise :class:`StoppedError` if a signal asked to stop."""
        self._stop.check()


def validation_conditions(experiment: Experiment) -> list[Condition]:
    """Return how the clean and the robust accuracy are measured."""
    spec = experiment.recipe.validation
    threat = experiment.threat if spec.eps is None else experiment.threat.with_eps(spec.eps)
    if spec.robust == "pgd":
        strong = STRONG_IN_L0 if threat.name == "l0" else STRONG
        names = ["clean", f"pgd-{spec.steps}", strong]
        return parse_conditions(names, [threat], threat.bounds)
    return [Condition("clean", "clean"), certificate_condition("ibp", threat)]


def validate(experiment: Experiment, stop: Stop) -> Validated:
    """Test the validation samples, the same ones each time."""
    spec, split = experiment.recipe.validation, experiment.data.validation
    order = torch.arange(min(len(split), spec.samples or len(split)))
    clean = experiment.recipe.evaluation.branch == "clean"
    domain: Domain = "clean" if clean else "adversarial"
    results = []
    for condition in validation_conditions(experiment):
        order = order[:FEW] if condition.name in STRONGEST else order
        size, device = BATCH * ranks.size(), experiment.device
        batches = split.batches(order, batch_size=size, device=device)
        with route(experiment.model, domain=domain):
            try:
                verdicts = run_condition(
                    experiment.model,
                    batches,
                    condition,
                    total=len(order),
                    seed=experiment.recipe.seed,
                    progress=_Stopping(stop),
                )
            except NonFiniteGradientError as error:
                raise NotFiniteError(f"validation: {error}") from error
        results.append(verdicts)
    return Validated(*results)
