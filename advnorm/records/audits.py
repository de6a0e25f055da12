"""Whether a robustness is real, check by check, and the flags that follow."""

from collections.abc import Sequence
from typing import Literal

from advnorm.records.base import Accuracy, Record, ThreatRecord
from advnorm.records.completion import Training, mark_of
from advnorm.records.results import Result, result_key


class Check(Record):
    """One question about a robust accuracy, answered."""

    name: str
    status: Literal["passed", "flagged", "not run"]
    numbers: dict[str, float] = {}
    says: str
    """What was seen and what to do about it; or why it was not run."""

    @property
    def flag(self) -> str:
        """The sentence that stands beside every accuracy that this check concerns."""
        return f"{AUDITED}{self.name}: {self._told}"

    @property
    def _shown(self) -> str:
        return ", ".join(f"{key} {value:.4g}" for key, value in self.numbers.items())

    @property
    def _told(self) -> str:
        return f"{self.says} ({self._shown})" if self.numbers else self.says

    def __str__(self) -> str:
        told = self._shown if self.status == "passed" else self._told
        return f"{_SIGNS[self.status]} {self.name:<24} {told}"


AUDITED = "audit, "
"""How the flags of an audit begin, so that a later one replaces them."""
_SIGNS = {"passed": "  ok  ", "flagged": "  FLAG", "not run": "  -   "}


class Audit(Record):
    """Whether a robustness is real: ``audits/<key>.json``."""

    threat: ThreatRecord
    n: int
    clean: Accuracy
    weak: Accuracy | None = None
    """Under the attack that is doubted (PGD-10)."""
    strong: Accuracy | None = None
    """Under all attacks of the audit together."""
    suite: tuple[str, ...] = ()
    """The strong attacks."""
    checks: tuple[Check, ...]
    weights: str = "given"
    training: Training | None = None
    """Of a run: how far it was."""
    branch: Literal["adversarial", "clean"] | None = None
    seed: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """A file name that says norm, radius and branch."""
        return result_key("audit", self.threat, self.branch)

    @property
    def flagged(self) -> tuple[str, ...]:
        """The names of the checks that found something."""
        return tuple(check.name for check in self.checks if check.status == "flagged")

    @property
    def flags(self) -> tuple[str, ...]:
        """What stands beside an accuracy of this model: a sentence a flagged check."""
        return tuple(check.flag for check in self.checks if check.status == "flagged")

    def concerns(self, result: Result) -> bool:
        """Tell whether it speaks of this result: same weights, branch, norm, an attack.

        A radius of its own is no matter: an attack that fails at one fails at others. A
        certificate is a bound, which holds however an attack fares.
        """
        branches = (self.branch, "worst") if self.branch else (None,)
        return (
            result.threat is not None
            and result.threat.norm == self.threat.norm
            and result.threat.eps > 0
            and not result.certificate
            and result.weights == self.weights
            and result.branch in branches
        )

    def __str__(self) -> str:
        where = f"{self.threat.norm} {self.threat.eps:.4g}"
        mark = mark_of(self.training)
        head = [f"audit at {where}: clean {self.clean}{mark}"]
        if self.weak and self.strong:
            strong = f"{' + '.join(self.suite)} {self.strong}{mark}"
            head.append(f"pgd-10 {self.weak}{mark}; {strong}")
        found = len(self.flagged)
        end = f"{found} of {len(self.checks)} checks flagged" if found else "no flag"
        return "\n".join([*head, *(str(check) for check in self.checks), end])


def with_flags(result: Result, audits: Sequence[Audit]) -> Result:
    """Put the flags of the audits that concern a result beside its own."""
    heard = [audit for audit in audits if audit.concerns(result)]
    own = (flag for flag in result.flags if not (heard and flag.startswith(AUDITED)))
    found = (flag for audit in heard for flag in audit.flags)
    return result.model_copy(update={"flags": tuple(dict.fromkeys((*own, *found)))})
