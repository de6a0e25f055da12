"""Does any method certify a network with a hidden counterexample? Counts an operation.

    python benchmarks/planted.py [--count 20000] [--seed 0]

Networks are planted (tests/bounds/planted.py) until that many questions were asked, each a
network, a norm of the threat, a type and a method. Of each operation: how many were
planted, refused, bounded and not certified, and certified; and how many of the networks
that were moved the other way, so that the label holds by a wide margin, ``crown``
certifies. Exits with 1 where a planted one was certified, and says how to make it again.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "bounds"))

from planted import (
    ACTIVATIONS,
    CANCELLING,
    FUNCTIONS,
    LAYERS,
    NORMS,
    OPERATIONS,
    REFUSED,
    Counts,
    tally,
)

GROUPS = {
    "layers": LAYERS,
    "activations": ACTIVATIONS,
    "norms": NORMS,
    "functions": FUNCTIONS,
    "large terms that cancel out": CANCELLING,
    "arguments, types and settings that are refused": REFUSED,
}
COLUMNS = ("planted", "refused", "bounded", "certified", "safe", "safe certified")


def line(name: str, count: Counts) -> str:
    """Return one row of the table."""
    numbers = (
        count.planted,
        count.refused,
        count.bounded,
        count.certified,
        count.safe,
        count.safe_certified,
    )
    return f"{name:46}" + "".join(f"{number:>16,}" for number in numbers)


def main() -> None:
    """Plant, ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    counts = {name: Counts() for name in OPERATIONS}
    seed = arguments.seed
    while sum(count.planted for count in counts.values()) < arguments.count:
        for name, count in tally([seed]).items():
            counts[name] = counts[name] + count
        seed += 1
    print(f"{'operation':46}" + "".join(f"{column:>16}" for column in COLUMNS))
    for name, count in counts.items():
        print(line(name, count))
    print()
    for name, operations in GROUPS.items():
        print(line(name, sum((counts[o] for o in operations), Counts())))
    total = sum(counts.values(), Counts())
    print(line(f"all, seeds {arguments.seed} to {seed - 1}", total))
    for false_certificate in total.false:
        print(f"certified: {false_certificate}")
    raise SystemExit(total.certified > 0)


if __name__ == "__main__":
    main()
