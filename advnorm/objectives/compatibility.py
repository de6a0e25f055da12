"""Which norms, objectives and batchings go together; a sentence where they do not."""

from collections.abc import Mapping

TWO_DOMAINS = frozenset({"mixed", "alp", "trades", "mixed_kl"})
CERTIFIED = frozenset({"ibp", "crown_ibp"})


def check_combination(
    *, norm: str, objective: str, batching: str | None, clean_rows: int | None = None
) -> None:
    """Raise before training starts if a combination makes no sense.

    ``clean_rows`` is how many clean images a batch keeps, where not all of them.
    """
    if objective in CERTIFIED and norm in ("mixture", "dual"):
        raise ValueError(
            f"objective {objective!r} gives the clean batch's moments to the clean map and "
            f"to both bounds (sridhar2021, Alg. 1), which a {norm} norm keeps apart: set "
            "norm.name=batch"
        )
    two = objective in TWO_DOMAINS and clean_rows != 0
    if norm == "dual" and not two:
        raise ValueError(
            f"objective {objective!r} trains on one domain, and a dual norm needs both "
            "in a batch to know them apart: choose one of "
            f"{', '.join(sorted(TWO_DOMAINS))}, with clean images"
        )
    if norm == "borrowed" and clean_rows == 0:
        raise ValueError(
            "a borrowed norm needs both domains in a batch: raise objective.clean_share"
        )
    if norm in ("mixture", "dual", "borrowed") and clean_rows == 1:
        raise ValueError(
            "one clean image a batch has no batch statistics: raise objective.clean_share "
            "or batch_size"
        )
    if norm in ("dual", "borrowed") and two and batching == "sequential":
        raise ValueError(
            f"a {norm} norm needs both domains in one batch, and sequential passes show it "
            "one at a time: set objective.batching=concatenated"
        )


def check_weights(
    objective: str, most: Mapping[str, float], *, clean_rows: int | None = None
) -> None:
    """Raise before training starts if a weight would leave its range in its course.

    ``most`` is the largest value of each weight that the objective has.
    """
    for name, value in most.items():
        if value > 1 and (name != "beta" or objective == "crown_ibp"):
            raise ValueError(
                f"objective.{name} is the share of one of two terms in {objective!r}, and "
                f"would reach {value:g}, above 1: lower it or its schedule"
            )
    if most.get("gamma") == 1 and clean_rows == 0:
        raise ValueError(
            "objective.gamma=1 weighs the clean images alone, and objective.clean_share=0 "
            "leaves none in a batch: lower gamma, or raise clean_share"
        )
