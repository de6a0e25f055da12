"""Count the samples against certified <= AutoAttack <= PGD <= clean.

    advnorm evaluate RUN --set 'conditions=[clean, pgd-200, standard, ibp]'
    python benchmarks/order.py RUN... [--eps 0.3]

Reads the verdicts of runs that were evaluated without certificates first, so that no order
holds by construction: for each pair it prints how many samples break it. A sample that is
verified and yet broken by an attack, or robust and yet wrong when clean, is a fault of the
code; one that PGD breaks and AutoAttack does not is a weakness of the search.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from advnorm.records import Run, ThreatRecord, result_key

CHAIN = ("ibp", "standard", "pgd-200", "clean")


def robust(run: Run, attack: str, eps: float) -> dict[int, bool]:
    """Return which samples stayed right under one attack."""
    threat = None if attack == "clean" else ThreatRecord(norm="linf", eps=eps)
    verdicts = run.verdicts(result_key(attack, threat))
    if attack != "ibp" and any(verdicts.certified):
        raise SystemExit(f"{run.path}: evaluate {attack} with --set certificate=none")
    return dict(zip(verdicts.samples, verdicts.robust, strict=True))


def main() -> None:
    """Print each run's accuracies and broken orders; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--eps", type=float, default=0.3)
    arguments = parser.parse_args()
    broken = 0
    for path in arguments.runs:
        run = Run.open(path)
        seen = {attack: robust(run, attack, arguments.eps) for attack in CHAIN}
        samples = set.intersection(*(set(verdicts) for verdicts in seen.values()))
        shares = [sum(seen[a][s] for s in samples) / max(1, len(samples)) for a in CHAIN]
        summary = ", ".join(f"{a} {s:.1%}" for a, s in zip(CHAIN, shares, strict=True))
        print(f"{path.name}: n={len(samples)}, {summary}")
        for less, more in pairwise(CHAIN):
            against = sum(seen[less][s] and not seen[more][s] for s in samples)
            broken += against
            print(f"  {less} <= {more}: {against} samples against it")
    raise SystemExit(broken > 0)


if __name__ == "__main__":
    main()
