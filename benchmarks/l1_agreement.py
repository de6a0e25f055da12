"""Robust accuracy in L1 beside the official AutoAttack's attacks, on public weights.

    python benchmarks/l1_agreement.py --official AUTO_ATTACK --public AUTO_LIRPA
        [--eps 4] [--samples 100] [--seeds 2] [--only apgd_ce-100x5 ...]

``--official`` is a checkout of fra31/auto-attack, ``--public`` one of
Verified-Intelligence/auto_LiRPA, whose ``mnist_a_adv`` and ``kw_mnist`` are attacked on
MNIST's first test images (``ADVNORM_DATA``). Both codes run at the published settings of
the standard version in L1: Auto-PGD on the cross-entropy with 5 restarts, on the targeted
DLR loss with 1 (9 target classes in both, where the official version has 5), and Square
with 5,000 queries. Each runs with each seed; the table has the means, and the lowest and
the highest, which show how much of a difference is chance. No time is a result here.

Exits with 1 where an attack of ours leaves over 0.2 points more than the official one.
"""

import argparse
from importlib import import_module
from pathlib import Path
from statistics import mean

import torch
from agreement import POINTS
from peers import official_from
from public_attacks import PRETRAINED, PUBLIC
from public_models import load_public
from torch import Tensor, nn

import advnorm
from advnorm.model_state import frozen_parameters

ATTACKS = {"apgd_ce-100x5": "apgd-ce", "apgd_t-100": "apgd-t", "square-5000": "square"}


def official(
    model: nn.Module, images: Tensor, labels: Tensor, attack: str, eps: float, seed: int
) -> Tensor:
    """Return which samples one attack of the official standard version leaves robust."""
    suite = import_module("autoattack").AutoAttack(
        model, norm="L1", eps=eps, seed=seed, device="cpu", verbose=False
    )
    suite.attacks_to_run = [ATTACKS[attack]]
    suite.apgd_targeted.n_target_classes = 9
    with frozen_parameters(model):
        _, guess = suite.run_standard_evaluation(images, labels, bs=250, return_labels=True)
    robust: Tensor = guess == labels
    return robust


def ours(
    model: nn.Module, images: Tensor, labels: Tensor, attack: str, eps: float, seed: int
) -> Tensor:
    """Return which samples our attack leaves robust."""
    threat = advnorm.L1(eps)
    result = advnorm.evaluate(model, images, labels, threat, conditions=[attack], seed=seed)
    return torch.tensor(next(iter(result.verdicts.values())).robust)


def row(path: Path, attack: str, options: argparse.Namespace) -> bool:
    """Print a row; return whether the limit is kept."""
    model, images, labels = load_public(path, options.samples)
    rates = [
        [
            100
            * float(code(model, images, labels, attack, options.eps, seed).float().mean())
            for seed in range(options.seeds)
        ]
        for code in (ours, official)
    ]
    apart = mean(rates[0]) - mean(rates[1])
    good = apart <= POINTS + 1e-6
    cells = [f"{mean(each):.1f} ({min(each):.1f} to {max(each):.1f})" for each in rates]
    print(
        f"| {path.stem} | {attack} | {len(labels)} | {cells[0]} | {cells[1]} | "
        f"{apart:+.1f}{'' if good else ' MISSED'} |",
        flush=True,
    )
    return good


def main() -> None:
    """Compare; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", type=Path, required=True)
    parser.add_argument("--public", type=Path, required=True)
    parser.add_argument("--eps", type=float, default=4.0)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--only", choices=list(ATTACKS), nargs="+", default=list(ATTACKS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    official_from(options.official)
    print("| network | attack | n | ours | official | apart (points) |\n|" + "---|" * 6)
    paths = [options.public / PRETRAINED / f"{name}.pth" for name in PUBLIC]
    good = [row(path, attack, options) for path in paths for attack in options.only]
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
