"""The accuracy after 10 to 2000 steps of PGD, all from one run (xie2020, Figures 2 and 3).

Projected gradient ascent has no memory: N steps are the first N of any longer run with the
same step size. So one run is judged at each step count. Two meanings of "accuracy under N
steps" are offered, because the loss may fall again along the path:

``worst``: a sample stands if it was right at every listed count up to N. It is dropped once
it is broken, and the curve can only fall. This is the stronger adversary, and the default.

``last``: a sample stands if it is right at the N-th iterate alone, which is what a separate
run of N steps says, and what the paper reports. Nothing is dropped.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from advnorm.attacks import Aim, LogitsFn
from advnorm.attacks.pgd import begin, climb
from advnorm.draws import Draws
from advnorm.evaluation.predictions import predict
from advnorm.evaluation.stages import STANDS, Judged
from advnorm.threat import Threat


class Path(NamedTuple):
    """A run of PGD, and where it is judged."""

    name: str
    """What its random numbers are drawn by."""
    counts: tuple[int, ...]
    """Rising numbers of steps."""
    restarts: int
    step_size: float
    aim: Aim
    clean_start: float
    last: bool

    @property
    def iterate(self) -> str:
        """Which iterates count: ``last`` or ``worst``."""
        return "last" if self.last else "worst"


class _Batch(NamedTuple):
    """What a path is walked on, and what is known so far."""

    clean: Tensor
    labels: Tensor
    found: Judged


def along(path: Path, threat: Threat) -> Callable[..., Judged]:
    """Judge by PGD at each step count; restarts count as in any other attack."""

    def judge(logits_fn: LogitsFn, clean: Tensor, labels: Tensor, draws: Draws) -> Judged:
        predictions = predict(logits_fn, clean, labels)
        right = predictions == labels
        stands = right[:, None].repeat(1, len(path.counts))
        by = torch.full_like(predictions, STANDS)
        batch = _Batch(clean, labels, Judged(clean.clone(), predictions, right, by, stands))
        for restart in range(path.restarts if threat.eps else 0):
            _walk(logits_fn, batch, path, threat, draws.stream(path.name, restart))
        robust = stands[:, -1]
        by[right & ~robust] = 0
        return batch.found._replace(robust=robust)

    return judge


def _walk(
    logits_fn: LogitsFn, batch: _Batch, path: Path, threat: Threat, draws: Draws
) -> None:
    """Climb from count to count, and mark in place what is broken there."""
    clean, labels, found = batch
    assert found.curve is not None
    x, taken = begin(clean, threat, clean_start=path.clean_start, draws=draws), 0
    for stage, count in enumerate(path.counts):
        rows = found.curve[:, stage:].any(1).nonzero().squeeze(1)
        if not len(rows):
            return
        gain = path.aim(logits_fn, clean[rows], labels[rows], draws[rows])
        x[rows] = climb(
            logits_fn,
            x[rows],
            clean[rows],
            threat,
            gain,
            steps=count - taken,
            step_size=path.step_size,
        )
        taken = count
        guess = predict(logits_fn, x[rows], labels[rows])
        success = (guess != labels[rows]) & threat.contains(x[rows], clean[rows])
        broken, end = rows[success], stage + 1 if path.last else None
        found.curve[broken, stage:end] = False
        found.images[rows] = x[rows]
        if not path.last or count == path.counts[-1]:
            found.predictions[broken] = guess[success]
