"""Robust accuracy in L1 beside the official AutoAttack's attacks, on public weights.

    python benchmarks/l1_agreement.py --official AUTO_ATTACK --public AUTO_LIRPA
        [--eps 4] [--samples 500] [--only apgd_ce-100x5 ...] [--again SEED]

``--official`` is a checkout of fra31/auto-attack, ``--public`` one of
Verified-Intelligence/auto_LiRPA, whose ``mnist_a_adv`` and ``kw_mnist`` are attacked on
MNIST's first test images (``ADVNORM_DATA``). Both codes run at the published settings of
the standard version in L1: Auto-PGD on the cross-entropy with 5 restarts, on the targeted
DLR loss with 5 target classes (9 in ours, and in the official code here), and Square with
5,000 queries. ``--again`` runs the official code with a second seed too, which shows how
much of a difference is chance. No time is a result here.

Exits with 1 where Auto-PGD or Square leaves over 0.2 points more than the official code.
"""

import argparse
from importlib import import_module
from pathlib import Path

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
    model: nn.Module, images: Tensor, labels: Tensor, attack: str, eps: float
) -> Tensor:
    """Return which samples our attack leaves robust."""
    result = advnorm.evaluate(model, images, labels, advnorm.L1(eps), conditions=[attack])
    return torch.tensor(next(iter(result.verdicts.values())).robust)


def percent(robust: Tensor) -> float:
    """Return the share of robust samples."""
    return 100 * float(robust.float().mean())


def row(path: Path, attack: str, options: argparse.Namespace) -> bool:
    """Print a row; return whether the limit is kept."""
    model, images, labels = load_public(path, options.samples)
    own = ours(model, images, labels, attack, options.eps)
    peer = official(model, images, labels, attack, options.eps, 0)
    apart, again = percent(own) - percent(peer), ""
    if options.again is not None:
        second = official(model, images, labels, attack, options.eps, options.again)
        again = f"{percent(second):.1f} ({int((second != peer).sum())} differ)"
    good = apart <= POINTS + 1e-6
    print(
        f"| {path.stem} | {attack} | {len(own)} | {percent(own):.1f} | {percent(peer):.1f} "
        f"| {apart:+.1f}{'' if good else ' MISSED'} | {int((peer & ~own).sum())} | "
        f"{int((own & ~peer).sum())} | {again} |",
        flush=True,
    )
    return good


def main() -> None:
    """Compare; exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", type=Path, required=True)
    parser.add_argument("--public", type=Path, required=True)
    parser.add_argument("--eps", type=float, default=4.0)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--only", choices=list(ATTACKS), nargs="+", default=list(ATTACKS))
    parser.add_argument("--again", type=int, metavar="SEED")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    official_from(options.official)
    print(
        "| network | attack | n | ours | official | apart (points) | only ours breaks | "
        "only the official breaks | official, another seed |\n|" + "---|" * 9
    )
    paths = [options.public / PRETRAINED / f"{name}.pth" for name in PUBLIC]
    good = [row(path, attack, options) for path in paths for attack in options.only]
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
