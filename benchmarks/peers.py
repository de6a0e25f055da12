"""The same attacks in other libraries, at the same settings; each is imported where asked.

A suite returns for each sample whether it still stands, PGD the images. The official
AutoAttack is not on PyPI: ``official_from`` puts a checkout of it on the path.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from advnorm.threat import Threat

Peer = Callable[[nn.Module, Tensor, Tensor, Threat], Tensor]
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
OFFICIAL = {
    "apgd_ce-100": "apgd-ce",
    "apgd_t-100": "apgd-t",
    "fab_t-100": "fab-t",
    "square-5000": "square",
}


def official_from(path: Path | None) -> None:
    """Make a checkout of the official AutoAttack importable."""
    if path is not None:
        sys.path.insert(0, str(path))


def find(name: str) -> ModuleType | None:
    """Import a peer, or return nothing where it is not there."""
    try:
        return import_module(name)
    except ImportError:
        return None


def official(attack: str | None = None, seed: int = 0) -> Peer:
    """Return the official standard version, or one of its attacks, batches of 250."""

    def peer(model: nn.Module, images: Tensor, labels: Tensor, threat: Threat) -> Tensor:
        module = import_module("autoattack")
        suite = module.AutoAttack(
            model,
            norm=NORMS[threat.name],
            eps=threat.eps,
            seed=seed,
            version="standard",
            device=images.device,
            verbose=False,
        )
        if attack is not None:
            suite.attacks_to_run = [OFFICIAL[attack]]
        _, guess = suite.run_standard_evaluation(images, labels, bs=250, return_labels=True)
        return guess == labels

    return peer


def torchattacks_suite(
    model: nn.Module, images: Tensor, labels: Tensor, threat: Threat
) -> Tensor:
    """Run torchattacks' standard version, with the published 100 steps, not its 10."""
    module = import_module("torchattacks")
    suite = module.AutoAttack(
        model, norm=NORMS[threat.name], eps=threat.eps, version="standard", seed=0
    )
    for attack in suite._autoattack.attacks:
        if hasattr(attack, "steps"):
            attack.steps = 100
    return _stands(model, suite(images, labels), labels)


def torchattacks_pgd(steps: int) -> Peer:
    """Return torchattacks' PGD with a random start; it returns the images."""

    def peer(model: nn.Module, images: Tensor, labels: Tensor, threat: Threat) -> Tensor:
        module = import_module("torchattacks")
        size = 2.5 * threat.eps / steps
        attack = module.PGD(model, eps=threat.eps, alpha=size, steps=steps)
        adversarial: Tensor = attack(images, labels)
        return adversarial

    return peer


def foolbox_pgd(steps: int) -> Peer:
    """Return foolbox's PGD with a random start; it returns the images."""

    def peer(model: nn.Module, images: Tensor, labels: Tensor, threat: Threat) -> Tensor:
        module = import_module("foolbox")
        wrapped = module.PyTorchModel(model, bounds=threat.bounds, device=images.device)
        attack = module.attacks.LinfPGD(rel_stepsize=2.5 / steps, steps=steps)
        adversarial: Tensor = attack.run(wrapped, images, labels, epsilon=threat.eps)
        return adversarial

    return peer


def _stands(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images).argmax(1) == labels
