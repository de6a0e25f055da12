"""No attack may break a sample that is certified at the same or a larger radius."""

from collections.abc import Iterable

from advnorm.records import Result, Verdicts


class CertificateError(ValueError):
    """An attack broke a sample that a certificate covers: one of the two is wrong."""


def refuse_broken_certificates(results: Iterable[tuple[Result, Verdicts]]) -> None:
    """Raise if an attack broke a sample that is certified at its radius or a larger one."""
    pairs = [(result, verdicts) for result, verdicts in results if result.threat]
    for proof, covers in pairs:
        certified = certified_samples(proof, covers)
        for result, verdicts in pairs if certified else ():
            broken = {s for s, by in zip(verdicts.samples, verdicts.by, strict=True) if by}
            both = sorted(certified & broken) if _comparable(proof, result) else []
            if both:
                raise CertificateError(
                    f"{result.key} broke sample {both[0]} (and {len(both) - 1} more), "
                    f"which {proof.key} certifies: one of them is wrong, please report it"
                )


def certified_samples(result: Result, verdicts: Verdicts) -> set[int]:
    """Return the samples that a result's certificate covers."""
    covers = verdicts.robust if result.kind == "certificate" else verdicts.certified
    return {s for s, yes in zip(verdicts.samples, covers, strict=False) if yes}


def _comparable(proof: Result, attack: Result) -> bool:
    """Tell whether an attack is on the same model and data, within the certified radius."""
    assert proof.threat and attack.threat
    same = all(
        getattr(proof, name) == getattr(attack, name)
        for name in ("weights", "data", "split", "branch", "statistics")
    )
    outer, inner = proof.threat, attack.threat
    inside = outer.norm == inner.norm and inner.eps <= outer.eps
    return same and inside and outer.bounds == inner.bounds
