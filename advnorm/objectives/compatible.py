"""Which norms, objectives and batchings go together; a sentence where they do not."""

TWO_DOMAINS = frozenset({"mixed", "alp", "trades", "mixed_kl"})


def refuse(*, norm: str, objective: str, batching: str | None) -> None:
    """Raise before training starts if a combination makes no sense."""
    two, batching = objective in TWO_DOMAINS, batching or "concatenated"
    if norm == "dual" and not two:
        raise ValueError(
            f"objective {objective!r} trains on one domain, and a dual norm needs both in "
            f"a batch to know them apart: choose one of {', '.join(sorted(TWO_DOMAINS))}"
        )
    if norm in ("dual", "borrowed") and two and batching == "sequential":
        raise ValueError(
            f"a {norm} norm needs both domains in one batch, and sequential passes show it "
            "one at a time: set objective.batching=concatenated"
        )
