"""What ``--set`` changes in the commands that work on run folders."""

from collections.abc import Sequence

WEIGHTS = ("weights", "branch")
"""Evaluation settings that every command on a run knows."""
SAMPLES = ("samples", "batch_size", *WEIGHTS)
THREAT = ("threat.eps", "threat.norm")
RECIPE_THREAT = ("evaluation.threat={}",)
"""The recipe's own threat, where ``--set`` names no other."""


def evaluation_settings(
    changes: Sequence[str] | None, allowed: Sequence[str] | None = None
) -> list[str]:
    """Return the changes with full keys: ``eps=0.1`` is ``evaluation.threat.eps=0.1``.

    A command that uses only the ``allowed`` settings refuses the others.
    """
    from advnorm.recipe import assignment, full_key
    from advnorm.registry import unknown

    full = []
    for change in changes or []:
        path, _ = assignment(change)
        key = full_key(".".join(path), "evaluation")
        name = key.removeprefix("evaluation.")
        if allowed is not None and name not in allowed:
            raise unknown("evaluation setting of this command called", name, list(allowed))
        full.append(f"{key}={change.partition('=')[2]}")
    return full
