"""Held-out clean and robust accuracy, with the running statistics, during training."""

from typing import NamedTuple

import torch

from advnorm.attacks import NonFiniteGradientError
from advnorm.evaluate import cells, judge
from advnorm.norms import route
from advnorm.progress import Quiet
from advnorm.records import Verdicts
from advnorm.train.build import Job
from advnorm.train.guards import NotFiniteError
from advnorm.train.stop import Stop

BATCH = 250


class Validated(NamedTuple):
    """Verdicts on clean images and under PGD."""

    clean: Verdicts
    robust: Verdicts


class _Stopping(Quiet):
    """Lets a signal end a validation between two batches."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def update(self, done: int, total: int, text: str) -> None:
        """Stop here if asked to."""
        self._stop.check()


def validate(job: Job, stop: Stop) -> Validated:
    """Judge the validation samples, the same ones each time."""
    spec, split = job.recipe.validation, job.data.validation
    order = torch.arange(min(len(split), spec.samples or len(split)))
    names = ["clean", f"pgd-{spec.steps}"]
    branch = job.recipe.evaluation.branch
    found = []
    for cell in cells(names, [job.threat], job.threat.bounds):
        batches = split.batches(order, batch_size=BATCH, device=job.device)
        with route(job.model, domain="clean" if branch == "clean" else "adversarial"):
            try:
                verdicts = judge(
                    job.model,
                    batches,
                    cell,
                    total=len(order),
                    seed=job.recipe.seed,
                    progress=_Stopping(stop),
                )
            except NonFiniteGradientError as error:
                raise NotFiniteError(f"validation: {error}") from error
        found.append(verdicts)
    return Validated(*found)
