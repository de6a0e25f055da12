"""The record of an audit: is a robust accuracy real? Check by check, with flags."""

from collections.abc import Sequence
from typing import Literal

from advnorm.records.base import Accuracy, Record, ThreatRecord
from advnorm.records.completion import TrainingProgress, mark_of
from advnorm.records.results import Result, result_key


class Check(Record):
    """One check of an audit, and its outcome."""

    name: str
    """One of ``advnorm list checks``."""
    status: Literal["passed", "flagged", "not run"]
    """What came out."""
    numbers: dict[str, float] = {}
    """What was measured, by name."""
    says: str
    """What was measured and what to do about it; or why the check was not run."""

    @property
    def flag(self) -> str:
        """The sentence beside every accuracy that this check concerns."""
        return f"{FLAG_PREFIX}{self.name}: {self._sentence}"

    @property
    def _numbers(self) -> str:
        return ", ".join(f"{key} {value:.4g}" for key, value in self.numbers.items())

    @property
    def _sentence(self) -> str:
        return f"{self.says} ({self._numbers})" if self.numbers else self.says

    def __str__(self) -> str:
        text = self._numbers if self.status == "passed" else self._sentence
        return f"{_SIGNS[self.status]} {self.name:<24} {text}"


FLAG_PREFIX = "audit, "
"""How the flags of an audit begin, so that those of a later audit replace them."""
_SIGNS = {"passed": "  ok  ", "flagged": "  FLAG", "not run": "  -   "}


class Audit(Record):
    """Whether a robust accuracy is real: ``audits/<key>.json``."""

    threat: ThreatRecord
    """The ball of its attacks."""
    n: int
    """Samples that were attacked."""
    clean: Accuracy
    """Without an adversary."""
    weak: Accuracy | None = None
    """Under PGD-10, the attack in doubt."""
    strong: Accuracy | None = None
    """Under all attacks of the audit together."""
    suite: tuple[str, ...] = ()
    """The strong attacks."""
    checks: tuple[Check, ...]
    """All checks, those not run included."""
    proposal: str = ""
    """The adaptive search that the flags call for, as a line of code; or empty."""
    weights: str = "given"
    """Which checkpoint, and its SHA-256; ``given`` for a model that is no run's."""
    training: TrainingProgress | None = None
    """Of a run: how far it was."""
    branch: Literal["adversarial", "clean"] | None = None
    """Of a model with a mixture norm: the branch that was attacked."""
    seed: int = 0
    """Of the random numbers of its attacks."""
    seconds: float = 0.0
    """What it took."""

    @property
    def key(self) -> str:
        """A file name that says norm, radius and branch."""
        return result_key("audit", self.threat, self.branch)

    @property
    def flagged(self) -> tuple[str, ...]:
        """The names of the flagged checks."""
        return tuple(check.name for check in self.checks if check.status == "flagged")

    @property
    def flags(self) -> tuple[str, ...]:
        """The warnings beside an accuracy of this model: a sentence per flagged check."""
        return tuple(check.flag for check in self.checks if check.status == "flagged")

    def concerns(self, result: Result) -> bool:
        """Tell whether the flags apply to a result: same weights, branch, norm; an attack.

        The radius may differ: an attack that fails at one radius fails at others. A
        certificate is a bound, which holds whether or not attacks fail.
        """
        branches = (self.branch, "worst") if self.branch else (None,)
        return (
            result.threat is not None
            and result.threat.norm == self.threat.norm
            and result.threat.eps > 0
            and result.kind != "certificate"
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
        count = len(self.flagged)
        end = f"{count} of {len(self.checks)} checks flagged" if count else "no flag"
        after = [f"next: {self.proposal}"] if self.proposal else []
        return "\n".join([*head, *(str(check) for check in self.checks), end, *after])


def with_flags(result: Result, audits: Sequence[Audit]) -> Result:
    """Put the flags of the audits that concern a result beside its own."""
    concerned = [audit for audit in audits if audit.concerns(result)]
    own = [f for f in result.flags if not (concerned and f.startswith(FLAG_PREFIX))]
    new = [flag for audit in concerned for flag in audit.flags]
    return result.model_copy(update={"flags": tuple(dict.fromkeys(own + new))})
