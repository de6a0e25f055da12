"""Held-out clean and robust accuracy, with the running statistics, during training."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.attacks import LogitsFn, NonFiniteGradientError
from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.draws import Draws
from advnorm.evaluation import cells, judge
from advnorm.evaluation.conditions import Cell
from advnorm.evaluation.predictions import predict
from advnorm.evaluation.stages import STANDS, Judged
from advnorm.norms import route
from advnorm.progress import Quiet
from advnorm.records import Verdicts
from advnorm.threat import Threat
from advnorm.training.build import Experiment
from advnorm.training.guards import NotFiniteError
from advnorm.training.stop import Stop

BATCH = 250


STRONG = "apgd_dlr-20"
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
        """Stop here if asked to."""
        self._stop.check()


def _cells(experiment: Experiment) -> list[Cell]:
    """Return how the clean and the robust accuracy are found."""
    spec = experiment.recipe.validation
    threat = experiment.threat if spec.eps is None else experiment.threat.with_eps(spec.eps)
    if spec.robust == "pgd":
        return cells(["clean", f"pgd-{spec.steps}", STRONG], [threat], threat.bounds)
    (clean,) = cells(["clean"], [], threat.bounds)
    return [clean, Cell("ibp", partial(_verify, experiment.model, threat), threat)]


def _verify(
    model: nn.Module,
    threat: Threat,
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    draws: Draws,
) -> Judged:
    """Judge by interval bounds: right is what no perturbation can change."""
    with torch.no_grad():
        margins, _ = ibp_margins(trace(model), input_box(clean, threat), labels)
    others = margins.scatter(1, labels[:, None], torch.inf)
    predictions = predict(logits_fn, clean, labels)
    verified = (others.amin(1) > 0) & (predictions == labels)
    return Judged(clean, predictions, verified, torch.full_like(labels, STANDS))


def validate(experiment: Experiment, stop: Stop) -> Validated:
    """Judge the validation samples, the same ones each time."""
    spec, split = experiment.recipe.validation, experiment.data.validation
    order = torch.arange(min(len(split), spec.samples or len(split)))
    branch = experiment.recipe.evaluation.branch
    found = []
    for cell in _cells(experiment):
        order = order[:FEW] if cell.name == STRONG else order
        batches = split.batches(
            order, batch_size=BATCH * ranks.size(), device=experiment.device
        )
        with route(
            experiment.model, domain="clean" if branch == "clean" else "adversarial"
        ):
            try:
                verdicts = judge(
                    experiment.model,
                    batches,
                    cell,
                    total=len(order),
                    seed=experiment.recipe.seed,
                    progress=_Stopping(stop),
                )
            except NonFiniteGradientError as error:
                raise NotFiniteError(f"validation: {error}") from error
        found.append(verdicts)
    return Validated(*found)
