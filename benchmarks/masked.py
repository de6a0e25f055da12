"""Masked models: what evaluations say of them, and what they say of sound ones.

    python benchmarks/masked.py                  # the table of docs/benchmarks.md
    python benchmarks/masked.py --sound          # flags of sound models, every norm
    python benchmarks/masked.py --cost           # the share of the checks in an evaluation
    python benchmarks/masked.py --public FILE    # hide a public network instead

A base network is trained on digits; each masked model hides it. Beside the accuracy stands
what the named attacks alone leave, and which checks are flagged. ``--public`` takes weights
of auto_LiRPA's ``examples/vision/pretrained`` for MNIST (``mnist_a_adv.pth``,
``kw_mnist.pth``, ``mnist_cnn_small.pth``), and MNIST from ``ADVNORM_DATA``.
"""

import argparse
import re
import sys
import time
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "evaluation"))

from masked_models import MASKED
from public_networks import public
from sound_models import digits, zoo

from advnorm.evaluation import audit, evaluate
from advnorm.evaluation.samples import Samples
from advnorm.evaluation.screening import Suspicion, first_answers
from advnorm.models import build
from advnorm.norms import NORMS
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.runs.load import load_trained
from advnorm.threat import THREATS, Linf
from advnorm.training import train
from advnorm.training.components import load_data

EPS = {"digits": 0.15, "mnist": 0.1}
COLUMNS = {"default": ("pgd-50",), "standard": ("standard",)}


def base(folder: Path) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network that was trained on clean digits, and test samples."""
    recipe = override(find("digits.standard"), ["model.options.width=64", "epochs=8"])
    run = train(recipe, folder / "base", device="cpu")
    data = load_data(recipe, root=None)
    model, _, _ = load_trained(run, recipe, data, weights="last", warnings=[])
    batch = next(data.test.batches(torch.arange(360), batch_size=360, device=None))
    return model, batch.images, batch.labels


def table(count: int, names: list[str], path: Path | None) -> None:
    """Print a row a model: the number of each evaluation, without and with its flags."""
    with TemporaryDirectory() as folder:
        model, images, labels = public(path) if path else base(Path(folder))
    images, labels = images[:count], labels[:count]
    data, what = ("mnist", path.name) if path else ("digits", "digits.standard")
    eps = EPS[data]
    print(f"{what} on {data}, Linf {eps}, n={count}, torch {torch.__version__}")
    print("| model | default | standard | audit |\n|---|---|---|---|")
    for name, mask in {"(the network itself)": lambda net: net, **MASKED}.items():
        if names and not any(word in name for word in names):
            continue
        cells = [
            _evaluated(mask(deepcopy(model)), images, labels, attacks, eps)
            for attacks in COLUMNS.values()
        ]
        cells.append(_audited(mask(deepcopy(model)), images, labels, eps))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _evaluated(model, images, labels, attacks, eps) -> str:
    result = evaluate(model, images, labels, Linf(eps), conditions=attacks).results[-1]
    alone = re.search(r"alone leaves ([0-9.]+%)", " ".join(result.notes))
    flags = [re.match(r"audit, (\w+):", flag)[1] for flag in result.flags]
    before = f"{alone[1]} -> " if alone else ""
    return f"{before}{result.accuracy.fraction:.1%} {', '.join(flags) or 'no flag'}"


def _audited(model, images, labels, eps) -> str:
    audited = audit(model, images, labels, Linf(eps))
    strong = f"{audited.strong.fraction:.1%}" if audited.strong else "-"
    more = f" and {len(audited.flagged) - 3} more" if len(audited.flagged) > 3 else ""
    return f"{strong} {', '.join(audited.flagged[:3]) or 'no flag'}{more}"


def sound(families: list[str]) -> None:
    """Print each flag that a sound model raises, and how many evaluations there were."""
    count, flagged = 0, 0
    for item in zoo(families or None):
        for eps, norm in ((8 / 255, "linf"), (0.5, "l2")):
            results = evaluate(item.model, item.images, item.labels, THREATS[norm](eps))
            flags = {flag for result in results.results for flag in result.flags}
            count, flagged = count + 1, flagged + bool(flags)
            rates = " ".join(
                f"{r.condition} {r.accuracy.fraction:.0%}" for r in results.results
            )
            print(f"{item.name} {norm}: {rates} {sorted(flags) or 'no flag'}", flush=True)
    print(f"{flagged} of {count} evaluations of sound models flagged")


def cost(rounds: int) -> None:
    """Print the share of all checks in a default evaluation of 1,000 images."""
    images, labels = digits()
    images, labels = images[:1000], labels[:1000]
    for name, options in (("cnn_small", {"width": 16}), ("preact_resnet18", {"width": 16})):
        torch.manual_seed(0)
        model = build(
            name, shape=(3, 32, 32), classes=10, norm=NORMS["batch"](), options=options
        )
        model.eval()
        with torch.no_grad():
            labels = torch.cat([model(x).argmax(1) for x in images.split(250)])
        whole, checks = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            evaluate(model, images, labels, Linf(8 / 255))
            whole.append(time.perf_counter() - start)
            samples = Samples(images, labels, (0.0, 1.0))
            start, threat = time.perf_counter(), Linf(8 / 255)
            history = first_answers(model, samples, threat)
            few = next(samples.batches(model, 64))
            Suspicion(model, few, threat, history).flags()
            checks.append(time.perf_counter() - start)
        shares = sorted(c / w for c, w in zip(checks, whole, strict=True))
        print(
            f"{name}: all checks take {shares[len(shares) // 2]:.2%} of a default "
            f"evaluation (median of {rounds}; {shares[0]:.2%} to {shares[-1]:.2%})",
            flush=True,
        )


def main() -> None:
    """Choose."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names: only these models")
    parser.add_argument("--sound", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--public", type=Path, help="weights of auto_LiRPA for MNIST")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.sound:
        sound(asked.names)
    elif asked.cost:
        cost(asked.rounds)
    else:
        table(asked.count, asked.names, asked.public)


if __name__ == "__main__":
    main()
