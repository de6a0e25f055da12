"""The planted test: whether attacks find what is known to be there."""

from typing import ClassVar

from advnorm.records.base import Accuracy, Count, Record


class PlantedTest(Record):
    """How many planted adversarial examples the attacks of an evaluation found.

    The binarization test of Zimmermann et al. (NeurIPS 2022).
    """

    PASS: ClassVar[float] = 0.95
    """The share that an evaluation has to find."""
    attacks: tuple[str, ...]
    """The attacks that searched, with the settings of the evaluation."""
    solved: Count
    """Samples whose planted class an attack reached."""
    missed: Count
    """Samples whose planted class no attack reached."""
    undecided: Count = 0
    """Samples that withstood the first attacks when the budget of passes was used up."""
    not_planted: Count = 0
    """Samples for which no example could be planted: no readout separates the points."""
    random: Count = 0
    """Of the planted samples, those that random sampling solves."""
    inner_points: Count
    """Points inside the ball that a readout separates from the planted one."""
    random_points: Count
    """Points of random sampling: in the ball, and on its boundary."""
    passes: Count
    """What it cost: forward passes of one sample; a gradient counts as two more."""
    reason: str = ""
    """Why nothing could be planted at all; else empty."""

    @property
    def success(self) -> Accuracy:
        """The share of the samples that attacks solved, among those that were decided."""
        return Accuracy(correct=self.solved, n=self.solved + self.missed)

    @property
    def random_success(self) -> Accuracy:
        """The share of the planted samples that random sampling solves."""
        return Accuracy(correct=self.random, n=self.solved + self.missed + self.undecided)

    @property
    def flagged(self) -> bool:
        """Whether the attacks found less than 95% of what was planted.

        >>> fields = dict(attacks=("pgd-50",), inner_points=9, random_points=9, passes=1)
        >>> [PlantedTest(solved=s, missed=20 - s, **fields).flagged for s in (19, 18)]
        [False, True]
        """
        return self.success.n > 0 and self.success.fraction < self.PASS

    @property
    def informative(self) -> bool:
        """Whether a pass says something: random sampling solves less than half."""
        return self.random_success.n > 0 and self.random_success.fraction < 0.5

    @property
    def numbers(self) -> dict[str, float]:
        """Its shares and counts by name."""
        if not self.random_success.n:
            return {}
        decided = {"found": self.success.fraction} if self.success.n else {}
        return decided | {
            "by random sampling": self.random_success.fraction,
            "samples": float(self.success.n),
        }

    def __str__(self) -> str:
        if self.reason:
            return f"planted test: not run, {self.reason}"
        if not self.random_success.n:
            return f"planted test: not run, {self.not_planted} samples could not be planted"
        parts = [f"planted test: attacks find {self.success}"]
        parts.append(
            f"{self.random_points} random points {self.random_success.fraction:.1%}"
        )
        if not self.informative:
            parts.append("so a pass says little")
        if self.undecided:
            parts.append(f"{self.undecided} undecided")
        if self.not_planted:
            parts.append(f"{self.not_planted} not planted")
        return ", ".join(parts)
