"""Which norms, objectives and batchings can be combined."""

from collections.abc import Mapping

TWO_DOMAINS = frozenset({"mixed", "alp", "trades", "mixed_kl"})
"""Objectives on clean and adversarial images together."""
CERTIFIED = frozenset({"ibp", "crown_ibp"})
"""Objectives that minimize a bound of the worst loss."""


def check_combination(
    *, norm: str, objective: str, batching: str | None, clean_rows: int | None = None
) -> None:
    """Refuse combinations that make no sense, before training starts.

    ``clean_rows`` is the number of clean images in a batch, if not all are used.
    """
    if objective in CERTIFIED and norm in ("mixture", "dual", "affine"):
        raise ValueError(
            f"objective {objective!r} normalizes the clean map and both bounds alike "
            f"(sridhar2021, Alg. 1), which a {norm} norm separates: set norm.name=batch"
        )
    two = objective in TWO_DOMAINS and clean_rows != 0
    if norm == "dual" and not two:
        raise ValueError(
            f"objective {objective!r} trains on one domain, but the gate of a dual norm "
            "needs both in a batch: choose one of "
            f"{', '.join(sorted(TWO_DOMAINS))}, with clean images"
        )
    if norm == "borrowed" and clean_rows == 0:
        raise ValueError(
            "a borrowed norm needs both domains in a batch: raise objective.clean_share"
        )
    if norm in ("mixture", "dual", "borrowed") and clean_rows == 1:
        raise ValueError(
            "one clean image per batch has no batch statistics: raise "
            "objective.clean_share or batch_size"
        )
    if norm in ("dual", "borrowed") and two and batching == "sequential":
        raise ValueError(
            f"a {norm} norm needs both domains in one batch, but a sequential pass has "
            "only one: set objective.batching=concatenated"
        )


def check_weights(
    objective: str, largest: Mapping[str, float], *, clean_rows: int | None = None
) -> None:
    """Refuse weights that would leave their range during training, before it starts.

    ``largest`` is the largest value of each weight of the objective.
    """
    for name, value in largest.items():
        if value > 1 and (name != "beta" or objective == "crown_ibp"):
            raise ValueError(
                f"objective.{name} is the weight of one of two terms in {objective!r}, and "
                f"would reach {value:g}, above 1: lower it or its schedule"
            )
    if largest.get("gamma") == 1 and clean_rows == 0:
        raise ValueError(
            "objective.gamma=1 trains on clean images alone, but objective.clean_share=0 "
            "leaves none in a batch: lower gamma, or raise clean_share"
        )
