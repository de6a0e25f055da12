"""False robustness: the gap between a weak attack and a strong one (sitawarin2021, 3.2)."""

from advnorm.evaluation.checks.context import CHECKS, WEAK, Finding, Subject
from advnorm.evaluation.checks.significance import count, exceeds

HONEST_GAP = 0.1364
"""The largest PGD-10 minus AutoAttack of a sound model in sitawarin2021's Table 2."""


@CHECKS.register("false_robustness")
def false_robustness(subject: Subject) -> Finding:
    """Ask whether stronger attacks break much of what PGD-10 leaves (sitawarin2021, 3.2).

    In the paper's Table 2 the gap is at most 13.64 points for sound models and at least
    27.48 for those with false robustness. Flagged is a gap whose whole 95% interval is
    above 13.64. The paper's strong attack is AutoAttack; ours is the audit's suite.
    """
    weak, strong = subject.standing(WEAK), subject.strongest
    n = len(weak)
    return Finding(
        exceeds(count(weak & ~strong), n, HONEST_GAP),
        f"stronger attacks ({', '.join(subject.suite)}) break what {WEAK} does not: report "
        "the strong accuracy, and train with a KL term or another objective",
        {WEAK: count(weak) / n, "strong": count(strong) / n},
    )
