"""Whether a bracket of radii ever crosses, and what radii cost in passes.

    python benchmarks/brackets.py --public CHECKOUT [--samples 2000]
    python benchmarks/brackets.py --public CHECKOUT --cost [--count 60]

Five networks are trained on digits; a sixth and a seventh are public ones for MNIST, of
auto_LiRPA's checkout (``examples/vision/pretrained``; MNIST from ``ADVNORM_DATA``). Each
gets its share of the samples, in Linf and in L2. The certified radii are CROWN's, the
broken ones those of all attacks of the condition ``radii`` and of PGD beside it. Of each
row: samples, those that are misclassified, those with a certified and with a broken radius
above 0, crossings (certified above broken by more than rounding), the median of broken over
certified, and the smallest. Exits with 1 on a crossing.

``--cost`` compares ``radii`` with ``standard`` at one radius on adversarially trained
networks instead: counted passes (a gradient counts as two more), without the certificates,
which are no passes of the model; and the ratio of the times, which has them. Limit 4.
"""

import argparse
import sys
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import torch
from public_models import load_public
from torch import Tensor, nn

from advnorm.evaluation import evaluate
from advnorm.evaluation.certificates import CertificateError
from advnorm.evaluation.last_layer import passes_counted
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.records import Bracket
from advnorm.runs.load import load_trained
from advnorm.threat import L2, Linf, Threat
from advnorm.training import train
from advnorm.training.components import load_data

CERTIFICATE, TIMES = "crown", 4.0
ROUNDING = 1e-6
OWN = {
    "digits.pgd": (),
    "digits.pgd_none": (),
    "digits.standard": (),
    "digits.standard_none": (),
    "digits.pgd_none, 3 hidden layers": ("model.options.depth=3",),
}
ADVERSARIAL_CNN = ("digits.pgd, cnn_small", ("model.name=cnn_small", "data.size=16"))
PUBLIC = ("mnist_a_adv.pth", "mnist_cnn_small.pth")
DIGITS_TEST = 360


class Network(NamedTuple):
    """A model with samples and the balls of its data."""

    name: str
    model: nn.Module
    images: Tensor
    labels: Tensor
    threats: tuple[Threat, ...]

    def first(self, count: int) -> "Network":
        """Return it with fewer samples."""
        return self._replace(images=self.images[:count], labels=self.labels[:count])


def trained(name: str, changes: tuple[str, ...]) -> Network:
    """Train a network on digits."""
    if changes and changes[0].startswith("model.name"):
        changes = ("model.options={}", *changes)
    recipe = override(find(name.partition(",")[0]), ["epochs=10", *changes])
    with TemporaryDirectory() as folder:
        run = train(recipe, Path(folder) / "run", device="cpu")
        data = load_data(recipe, root=None)
        model, _, _ = load_trained(run, recipe, data, weights="last", warnings=[])
    batch = next(data.test.batches(torch.arange(DIGITS_TEST), batch_size=360, device=None))
    threats = (Linf(0.1), L2(0.5))
    return Network(name, model.eval(), batch.images, batch.labels, threats)


def public(checkout: Path | None, names: tuple[str, ...]) -> Iterator[Network]:
    """Load public networks."""
    for name in names if checkout else ():
        path = checkout / "examples" / "vision" / "pretrained" / name
        yield Network(name, *load_public(path), (Linf(0.1), L2(0.5)))


def brackets(network: Network, threat: Threat) -> list[Bracket]:
    """Return the brackets of all samples; raises where an evaluation sees one cross."""
    result = evaluate(
        network.model,
        network.images,
        network.labels,
        threat,
        conditions=["pgd-50", "radii"],
        certificate=CERTIFICATE,
    )
    (verdicts,) = (v for key, v in result.verdicts.items() if key.startswith("radii"))
    return list(verdicts.radii)


def check(network: Network, threat: Threat) -> int:
    """Print a row; return the number of crossings."""
    try:
        pairs = brackets(network, threat)
    except CertificateError as error:
        print(f"| {network.name} | {threat} | {len(network.images)} | CROSSED: {error} |")
        return 1
    ends = [(c, float("inf") if b is None else b) for c, b in pairs]
    crossed = sum(c > b * (1 + ROUNDING) + ROUNDING for c, b in ends)
    wrong = sum(b == 0 for _, b in ends)
    certified = sum(c > 0 for c, _ in ends)
    broken = sum(b > 0 and isfinite(b) for _, b in ends)
    ratios = [b / c for c, b in ends if c > 0 and isfinite(b)]
    width = f"{median(ratios):.2f} | {min(ratios):.2f}" if ratios else "- | -"
    print(
        f"| {network.name} | {threat} | {len(ends)} | {wrong} | {certified} | {broken} | "
        f"{crossed} | {width} |",
        flush=True,
    )
    return crossed


def cost(network: Network, threat: Threat) -> bool:
    """Print what radii cost beside standard; return whether the limit is kept."""
    passes, seconds, left = {}, {}, ""
    for name in ("standard", "radii"):
        few = (network.model, network.images, network.labels, threat)
        with passes_counted(network.model) as counter:  # and so unfolded
            result = evaluate(*few, conditions=[name])
        passes[name] = counter.passes
        left = left or str(result.results[0].accuracy)
        start = perf_counter()
        evaluate(*few, conditions=[name])
        seconds[name] = perf_counter() - start
    times = passes["radii"] / passes["standard"]
    clock = seconds["radii"] / seconds["standard"]
    print(
        f"| {network.name} | {threat} | {left} | {passes['standard']:,} | "
        f"{passes['radii']:,} | {times:.2f} | {clock:.2f} |",
        flush=True,
    )
    return times <= TIMES


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--public", type=Path, help="checkout of auto_LiRPA")
    parser.add_argument("--samples", type=int, default=2000, help="of all networks")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--count", type=int, default=60, help="samples a network of --cost")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.cost:
        print(
            "| network | threat | standard leaves | passes | of radii | ratio | of times |"
        )
        print("|---|---|---|---|---|---|---|")
        networks = [trained(*ADVERSARIAL_CNN), *public(asked.public, PUBLIC[:1])]
        kept = [cost(n.first(asked.count), t) for n in networks for t in n.threats]
        sys.exit(0 if all(kept) else 1)
    titles = "network, threat, n, wrong, certified, broken, crossed, median ratio, smallest"
    print(f"| {titles.replace(', ', ' | ')} |\n|{'---|' * 9}")
    networks = [trained(*own) for own in OWN.items()]
    networks += public(asked.public, PUBLIC)
    share = -(-asked.samples // len(networks))
    crossed = sum(check(n.first(share), t) for n in networks for t in n.threats)
    count = sum(len(n.first(share).images) for n in networks)
    print(f"{crossed} crossings, {count} samples, {len(networks)} networks")
    sys.exit(1 if crossed else 0)


if __name__ == "__main__":
    main()
