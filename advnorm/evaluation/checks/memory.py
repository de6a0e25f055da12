"""State that a model keeps between queries, detected by its effect."""

from advnorm.evaluation.checks.context import CHECKS, AuditContext, Finding, NotRun
from advnorm.evaluation.checks.history import Change

FACTOR = 4.0
"""By which the slope between neighbours may change; sound models differ by the points."""


@CHECKS.register("stateful")
def stateful(context: AuditContext) -> Finding:
    """Ask whether the model answers after many queries as it did before them."""
    history = context.history
    if history is None:
        raise NotRun("the model's first answers were not kept")
    if context.randomness:
        raise NotRun("the model is randomized, so answers cannot be compared")
    if context.gradients is not None:
        context.path  # noqa: B018 (many queries, where no attack was run yet)
    return remembers(history.change())


def remembers(change: Change) -> Finding:
    """Say whether a change of answers is that of a model with a memory."""
    numbers = {"asked again": change.again, "slope": change.slope}
    if change.fresh is not None:
        numbers["copy without history"] = change.fresh
    return Finding(
        change.again > 0 or bool(change.fresh) or not 1 / FACTOR <= change.slope <= FACTOR,
        "the model answers otherwise after many queries (a counter, a memory of earlier "
        "images), so each attack meets another model: evaluate it without that state",
        numbers,
    )
