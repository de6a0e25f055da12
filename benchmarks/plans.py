"""How long ``advnorm plan`` takes for every recipe, the whole command each.

python benchmarks/plans.py [--limit 10]
"""

import argparse
import subprocess
import sys
from time import perf_counter

from advnorm.recipes import RECIPES


def main() -> None:
    """Time each recipe; exit with 1 if one fails or is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=10.0)
    limit = parser.parse_args().limit
    over = False
    for name in RECIPES:
        start = perf_counter()
        command = [sys.executable, "-m", "advnorm", "plan", name]
        done = subprocess.run(command, capture_output=True, check=False)
        seconds = perf_counter() - start
        over |= done.returncode != 0 or seconds > limit
        print(f"{name:28} {seconds:5.1f} s{'' if seconds <= limit else '  (over)'}")
    raise SystemExit(over)


if __name__ == "__main__":
    main()
