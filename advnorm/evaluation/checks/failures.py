"""Indicators of attack failure (Pintor et al., 2022, https://arxiv.org/abs/2106.09947).

Each looks at how an attack went, not at how many samples it broke. The sixth indicator,
unavailable gradients, is in :mod:`advnorm.evaluation.checks.outputs`.
"""

import torch
from torch import Tensor

from advnorm.evaluation.checks.context import CHECKS, PGD, AuditContext, Finding, NotRun
from advnorm.evaluation.checks.significance import count, exceeds

RADIUS = 0.02
"""Of the neighbourhood in which predictions should be stable, in units of eps."""
NEIGHBOURS = 5


@CHECKS.register("unstable_predictions")
def unstable_predictions(context: AuditContext) -> Finding:
    r"""Ask whether the loss jumps within a small neighbourhood: gradients mislead there.

    The median over samples of :math:`\min(1, |m(x + \delta) - m(x)| / |m(x)|)`, where m is
    the margin and :math:`\delta` is in a ball of 0.02 eps.
    """
    ball, x = context.threat.scaled(RADIUS), context.nearby
    here = _margin(context.logits(x), context.labels)
    ratios = []
    for number in range(NEIGHBOURS):
        near = ball.sample(x, context.draws.stream("neighbour", number))
        change = _margin(context.logits(near), context.labels) - here
        ratios.append((change / here.abs().clamp(min=1e-12)).abs().clamp(max=1))
    share = torch.stack(ratios).mean(0).median().item()
    return Finding(
        share > 0.1,
        "the loss jumps between neighbouring images, so its gradient misleads: smooth it "
        "(average over neighbours), or attack without gradients (square)",
        {"relative change": share},
    )


@CHECKS.register("silent_success")
def silent_success(context: AuditContext) -> Finding:
    """Ask whether PGD met images that fool the model, and returned others."""
    path = context.path
    silent = path.fooled[:-1].any(0) & ~path.fooled[-1] & context.correct
    return Finding(
        exceeds(count(silent), count(context.correct), 0.05),
        "the attack fooled the model on its way and returned another image: keep the best "
        "iterate (apgd_ce does), or use smaller steps",
        {"share of samples": count(silent) / max(1, count(context.correct))},
    )


@CHECKS.register("incomplete_optimization")
def incomplete_optimization(context: AuditContext) -> Finding:
    """Ask whether the loss of robust samples rises to PGD's last step."""
    path = context.path
    robust = context.correct & ~path.fooled.any(0)
    best = path.losses.cummax(0).values[:, robust]
    late = (best[-1] - best[-1 - len(best) // 10]) / (best[-1] - best[0]).clamp(min=1e-12)
    rising = count(late > 0.1)
    return Finding(
        exceeds(rising, len(context.labels), 0.05),
        "the attack stopped before it had converged: use more steps, or larger ones",
        {
            "share of samples": rising / len(context.labels),
            "median late rise": late.median().item() if len(late) else 0.0,
        },
    )


@CHECKS.register("transfer_failure")
def transfer_failure(context: AuditContext) -> Finding:
    """Ask whether images that fool the model in the attack do not in a fresh pass."""
    path = context.path
    rows = (path.fooled[-1] & context.correct).nonzero().squeeze(1)
    if len(rows) < 2:
        raise NotRun("the attack fooled the model on fewer than 2 samples")
    parts = torch.split(
        rows.flip(0), (len(rows) + 1) // 2
    )  # other batches than the attack's
    guess = torch.cat([context.logits(path.images[part]).argmax(1) for part in parts])
    lost = count(guess == context.labels[rows.flip(0)])
    return Finding(
        exceeds(lost, len(rows), 0.05),
        "successes of the search are none in a fresh pass: search on the same model, mode "
        "and precision that is deployed",
        {"share of successes": lost / len(rows)},
    )


@CHECKS.register("unconstrained_failure")
def unconstrained_failure(context: AuditContext) -> Finding:
    """Ask whether PGD fails although it may change every pixel at will."""
    robust = context.robust_under(PGD, threat=context.whole_box)
    return Finding(
        exceeds(count(robust), len(robust), 0.01),
        "an attack without a limit fails, which no classifier withstands: the search is "
        "broken, not the attacker beaten; look at the gradients",
        {"accuracy": count(robust) / len(robust)},
    )


def _margin(logits: Tensor, labels: Tensor) -> Tensor:
    right = logits.gather(1, labels[:, None]).squeeze(1)
    return right - logits.scatter(1, labels[:, None], -torch.inf).amax(1)
