"""Are tighter certificates tighter? Mean margins of every method on trained networks.

    python benchmarks/tightness.py RUN... [--eps 0.1,0.2,0.3] [--images 100]

For each run and radius: the mean margin over images and wrong classes, and the share of
images whose margins are all above the rounding slack. Exits with 1 where ``ibp`` is tighter
on average than ``crown-ibp``, or that than ``crown``.
"""

import argparse
from itertools import pairwise
from pathlib import Path

from certify import timed_network

from advnorm.bounds import certify
from advnorm.threat import Linf

ORDER = ("ibp", "crown-ibp", "crown")


def main() -> None:
    """Print a line for each run and radius."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--eps", default="0.1,0.2,0.3")
    parser.add_argument("--images", type=int, default=100)
    arguments = parser.parse_args()
    against = 0
    for run in arguments.runs:
        model, images, labels = timed_network(run, arguments.images)
        for eps in map(float, arguments.eps.split(",")):
            results = [certify(model, images, labels, Linf(eps), method=m) for m in ORDER]
            classes = results[0].margins.shape[1]
            means = [
                float(part.margins.mean()) * classes / (classes - 1) for part in results
            ]
            shares = [float(part.certified.float().mean()) for part in results]
            text = ", ".join(
                f"{method} {mean:.3f} ({share:.1%})"
                for method, mean, share in zip(ORDER, means, shares, strict=True)
            )
            print(f"{run.name}, eps {eps:g}, n={len(labels)}: {text}", flush=True)
            against += sum(less > more for less, more in pairwise(means))
    raise SystemExit(against > 0)


if __name__ == "__main__":
    main()
