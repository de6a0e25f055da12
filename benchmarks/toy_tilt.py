"""The toy problem of galloway2019, Fig. 1: seeds, samples and settings not in the paper.

    python benchmarks/toy_tilt.py [--seeds 20]

Prints a table of the angle between the batch-normalized boundary and the nearest-centroid
classifier (mean, standard deviation, range over seeds), beside the published 66.7 degrees
and the Bayes-optimal 78.7.
"""

import argparse
from dataclasses import replace

from advnorm.diagnosis.toy import PUBLISHED, ToyOptions, measure_angles

PROTOCOL = ToyOptions()
ROWS = {
    "paper's protocol, 100 samples": replace(PROTOCOL, samples=100),
    "paper's protocol, 1,000 samples": PROTOCOL,
    "paper's protocol, 10,000 samples": replace(PROTOCOL, samples=10_000),
    "30 samples": replace(PROTOCOL, samples=30),
    "start at zero": replace(PROTOCOL, scale=0.0),
    "start three times as large": replace(PROTOCOL, scale=3.0),
    "100 epochs": replace(PROTOCOL, epochs=100),
    "200 epochs": replace(PROTOCOL, epochs=200),
    "400 epochs": replace(PROTOCOL, epochs=400),
    "5,000 epochs": replace(PROTOCOL, epochs=5000),
    "lr 0.01": replace(PROTOCOL, lr=0.01),
    "lr 0.01, start at zero": replace(PROTOCOL, lr=0.01, scale=0.0),
    "lr 0.2 (softmax of two logits at 0.1)": replace(PROTOCOL, lr=0.2),
    "lr 1": replace(PROTOCOL, lr=1.0),
    "c = 0.001": replace(PROTOCOL, c=1e-3),
    "c = 0.01": replace(PROTOCOL, c=1e-2),
    "c = 0.1": replace(PROTOCOL, c=1e-1),
    "batches of 100": replace(PROTOCOL, batch_size=100),
}


def main() -> None:
    """Print each row of the table as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = range(parser.parse_args().seeds)
    print(
        f"{len(seeds)} seeds; published: {PUBLISHED} degrees behind batch norm, 0 without"
    )
    print(
        "| setting (1,000 samples unless said) | batch norm | range | <= 66.7 | no norm |"
    )
    print("|---|---|---|---|---|")
    for name, toy in ROWS.items():
        plain, tilt = measure_angles(toy, seeds)
        below = int((tilt <= PUBLISHED).sum())
        print(
            f"| {name} | {tilt.mean():.1f} ± {tilt.std():.1f} "
            f"| {tilt.min():.1f} to {tilt.max():.1f} | {below} of {len(seeds)} "
            f"| {plain.mean():.1f} ± {plain.std():.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
