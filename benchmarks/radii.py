"""Smallest adversarial distances beside adversarial-library's, and what radii cost.

    python benchmarks/radii.py --peer CHECKOUT [--public FILE...] [--samples 100]
                               [--norms linf,l2,l1,l0] [--cost | --attack pdpgd-500]

For each network and norm the condition ``radii`` looks for the nearest adversarial image of
each sample, and so do the peer's attacks, with as many steps and all targets of FAB:
DDN and FMN in L2, FAB and FMN in Linf, FAB, FMN and PDPGD in L1, sigma-zero and FMN in L0.
Of the peer the nearest image over its attacks counts, confirmed inside the box by our
distance. The median of ours may be 1% above the peer's. With ``--attack`` one of our
minimum-norm attacks stands alone beside the peer's of the same name. ``--cost`` times
``radii`` beside ``standard`` at one radius instead (limit 4 times). Networks: one that is
trained against PGD on digits, or ``--public`` weights of auto_LiRPA for MNIST. Exits with 1
where a limit is missed.
"""

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType
from typing import NamedTuple

import torch
from public_models import load_public
from torch import Tensor, nn

from advnorm.attacks import AttackName, parse_attack
from advnorm.evaluation import evaluate
from advnorm.model_state import frozen_parameters
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.runs.load import load_trained
from advnorm.threat import THREATS, Threat
from advnorm.training import train
from advnorm.training.components import load_data

ABOVE, TIMES = 1.01, 4.0
EPS = {
    "digits": {"linf": 0.15, "l2": 0.75, "l1": 3, "l0": 5},
    "mnist": {"linf": 0.1, "l2": 1.0, "l1": 8, "l0": 15},
}
PeerAttack = Callable[[nn.Module, Tensor, Tensor], Tensor]


class Network(NamedTuple):
    """A model with samples, and the radii of its data."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor
    eps: dict[str, float]


def digits() -> Network:
    """Train a small network against PGD on digits."""
    recipe = override(find("digits.pgd"), ["epochs=10"])
    with TemporaryDirectory() as folder:
        run = train(recipe, Path(folder) / "digits", device="cpu")
        data = load_data(recipe, root=None)
        model, _, _ = load_trained(run, recipe, data, weights="last", warnings=[])
    batch = next(data.test.batches(torch.arange(360), batch_size=360, device=None))
    return Network("digits", model.eval(), batch.images, batch.labels, EPS["digits"])


def peer_attacks(checkout: Path, norm: str) -> dict[str, PeerAttack]:
    """Return the peer's minimum-norm attacks of a norm, without its optional imports."""
    sys.path.insert(0, str(checkout))
    package = ModuleType("adv_lib.attacks")  # its own __init__ needs torchvision
    package.__path__ = [str(checkout / "adv_lib" / "attacks")]
    sys.modules.setdefault("adv_lib.attacks", package)
    logger = ModuleType("adv_lib.utils.visdom_logger")
    logger.VisdomLogger = object  # type: ignore[attr-defined]
    sys.modules.setdefault("adv_lib.utils.visdom_logger", logger)
    sys.modules.setdefault("tqdm", ModuleType("tqdm"))  # imported there, and not used

    def peer(module: str, name: str) -> Callable[..., Tensor]:
        function: Callable[..., Tensor] = getattr(
            import_module(f"adv_lib.attacks.{module}"), name
        )
        return function

    order = {"linf": float("inf"), "l2": 2, "l1": 1, "l0": 0}[norm]
    fmn = peer("fast_minimum_norm", "fmn")
    attacks: dict[str, PeerAttack] = {
        "FMN": lambda m, x, y: fmn(m, x, y, norm=order, steps=300)
    }
    if norm == "l2":
        ddn = peer("decoupled_direction_norm", "ddn")
        attacks["DDN"] = lambda m, x, y: ddn(m, x, y, steps=300, levels=None)
    if norm in ("linf", "l1"):
        fab = peer("fast_adaptive_boundary", "fab")
        attacks["FAB"] = lambda m, x, y: fab(
            m, x, y, norm=order, n_iter=100, targeted_restarts=True
        )
    if norm == "l1":
        pdpgd = peer("primal_dual_gradient_descent", "pdpgd")
        attacks["PDPGD"] = lambda m, x, y: pdpgd(m, x, y, norm=1, num_steps=500)
    if norm == "l0":
        sigma = peer("sigma_zero", "sigma_zero")
        attacks["sigma-zero"] = lambda m, x, y: sigma(m, x, y, num_steps=1000)
    return attacks


def distances(model: nn.Module, x: Tensor, network: Network, threat: Threat) -> Tensor:
    """Return the distances of images, infinite where they are classified correctly."""
    x = x.detach().clamp(*threat.bounds)
    with torch.no_grad():
        wrong = model(x).argmax(1) != network.labels
        clean = model(network.images).argmax(1) != network.labels
    lengths = threat.distance(x, network.images)
    return torch.where(wrong, lengths, torch.inf).masked_fill(clean, 0.0)


def ours(network: Network, threat: Threat, alone: AttackName | None) -> list[float]:
    """Return our smallest distances, of the condition ``radii`` or of one attack."""
    if alone is not None:
        search = alone.entry.nearest
        assert search is not None
        with frozen_parameters(network.model):
            nearest = search(
                network.model, network.images, network.labels, threat, steps=alone.steps
            )
        return distances(network.model, nearest.images, network, threat).tolist()
    result = evaluate(
        network.model, network.images, network.labels, threat, conditions=["radii"]
    )
    (verdicts,) = result.verdicts.values()
    return [float("inf") if b is None else b for _, b in verdicts.radii]


def compare(network: Network, norm: str, checkout: Path, alone: AttackName | None) -> bool:
    """Print one row; return whether the limit is kept."""
    threat = THREATS[norm](network.eps[norm], (0.0, 1.0))
    start = perf_counter()
    own = ours(network, threat, alone)
    own_time = perf_counter() - start
    start, theirs = perf_counter(), {}
    for name, attack in peer_attacks(checkout, norm).items():
        if alone is not None and key(name) != key(alone.entry.name):
            continue
        x = attack(network.model, network.images, network.labels)
        theirs[name] = distances(network.model, x, network, threat)
    peer_time = perf_counter() - start
    best = torch.stack(list(theirs.values())).amin(0).tolist()
    each = ", ".join(f"{name} {median(d.tolist()):.4g}" for name, d in theirs.items())
    middle, peers = median(own), median(best)
    good = middle <= ABOVE * peers
    nearer = sum(a < 0.99 * b for a, b in zip(own, best, strict=True))
    further = sum(a > 1.01 * b for a, b in zip(own, best, strict=True))
    print(
        f"| {network.name} | {norm} | {len(own)} | {middle:.4g} | {peers:.4g} ({each}) | "
        f"{middle / peers - 1:+.2%}{'' if good else ' MISSED'} | {nearer} | {further} | "
        f"{own_time:.0f} s | {peer_time:.0f} s |",
        flush=True,
    )
    return good


def key(name: str) -> str:
    """Return an attack's name without case and dashes."""
    return name.lower().replace("-", "").replace("_", "")


def cost(network: Network, norm: str) -> bool:
    """Time radii beside the standard suite at one radius."""
    threat = THREATS[norm](network.eps[norm], (0.0, 1.0))
    seconds, robust = {}, {}
    for name in ("standard", "radii"):
        start = perf_counter()
        result = evaluate(
            network.model, network.images, network.labels, threat, conditions=[name]
        )
        seconds[name] = perf_counter() - start
        robust[name] = str(result.results[0].accuracy)
    times = seconds["radii"] / seconds["standard"]
    good = times <= TIMES
    print(
        f"| {network.name} | {threat} | {robust['standard']} | "
        f"{seconds['standard']:.1f} s | {seconds['radii']:.1f} s | "
        f"{times:.2f}{'' if good else ' MISSED'} |",
        flush=True,
    )
    return good


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="checkout of adversarial-library")
    parser.add_argument("--public", type=Path, nargs="*", default=[])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--norms", default="linf,l2,l1,l0")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--attack", type=parse_attack, help="one of ours alone")
    options = parser.parse_args()
    networks = [
        Network(path.stem, *load_public(path), EPS["mnist"]) for path in options.public
    ] or [digits()]
    few = slice(options.samples)
    networks = [n._replace(images=n.images[few], labels=n.labels[few]) for n in networks]
    norms = options.norms.split(",")
    if options.cost:
        print("| network | threat | standard leaves | standard | radii | times |")
        print("|---|---|---|---|---|---|")
        good = [cost(n, norm) for n in networks for norm in norms]
    else:
        print("| network | norm | n | ours | peer's best | median | nearer | further | | |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        good = [
            compare(n, norm, options.peer, options.attack)
            for n in networks
            for norm in norms
        ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
