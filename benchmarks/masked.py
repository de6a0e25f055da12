"""Masked models: what evaluations say of them, and what they say of sound ones.

    python benchmarks/masked.py                  # the table of docs/audit.md
    python benchmarks/masked.py --sound          # flags of sound models, every norm
    python benchmarks/masked.py --cost           # the share of the checks in an evaluation

A base network is trained on digits; each masked model hides it. Beside the accuracy stands
what the named attacks alone leave, and which checks are flagged.
"""

import argparse
import re
import sys
import time
from copy import deepcopy
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "evaluate"))

from masked_models import MASKED
from sound_models import digits, zoo

from advnorm.evaluate import audit, evaluate
from advnorm.evaluate.samples import Samples
from advnorm.evaluate.suspicion import Suspicion, first_answers
from advnorm.models import build
from advnorm.norms import NORMS
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.threat import Linf
from advnorm.train import train
from advnorm.train.parts import load
from advnorm.train.subject import load_model

EPS = 0.15
COLUMNS = {"default": ("pgd-50",), "standard": ("standard",)}


def base(folder: Path) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network that was trained on clean digits, and test samples."""
    recipe = override(find("digits.standard"), ["model.options.width=64", "epochs=8"])
    run = train(recipe, folder / "base", device="cpu")
    data = load(recipe, root=None)
    model, _ = load_model(run, recipe, data, weights="last", warnings=[])
    batch = next(data.test.batches(torch.arange(360), batch_size=360, device=None))
    return model, batch.images, batch.labels


def table(count: int, names: list[str]) -> None:
    """Print a row a model: the number of each evaluation, without and with its flags."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        model, images, labels = base(Path(folder))
    images, labels = images[:count], labels[:count]
    print(f"digits, Linf {EPS}, n={count}, torch {torch.__version__}")
    print("| model | default | standard | audit |\n|---|---|---|---|")
    for name, mask in {"(the network itself)": lambda net: net, **MASKED}.items():
        if names and not any(word in name for word in names):
            continue
        cells = [
            _evaluated(mask(deepcopy(model)), images, labels, a) for a in COLUMNS.values()
        ]
        cells.append(_audited(mask(deepcopy(model)), images, labels))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _evaluated(model, images, labels, attacks) -> str:
    result = evaluate(model, images, labels, eps=EPS, attacks=attacks).results[-1]
    alone = re.search(r"alone leaves ([0-9.]+%)", " ".join(result.notes))
    flags = [re.match(r"audit, (\w+):", flag)[1] for flag in result.flags]
    before = f"{alone[1]} -> " if alone else ""
    return f"{before}{result.accuracy.rate:.1%} {', '.join(flags) or 'no flag'}"


def _audited(model, images, labels) -> str:
    found = audit(model, images, labels, eps=EPS)
    strong = f"{found.strong.rate:.1%}" if found.strong else "-"
    return f"{strong} {', '.join(found.flagged) or 'no flag'}"


def sound(families: list[str]) -> None:
    """Print each flag that a sound model raises, and how many evaluations there were."""
    count, flagged = 0, 0
    for item in zoo(families or None):
        for eps, norm in ((8 / 255, "linf"), (0.5, "l2")):
            results = evaluate(item.model, item.images, item.labels, eps=eps, norm=norm)
            flags = {flag for result in results.results for flag in result.flags}
            count, flagged = count + 1, flagged + bool(flags)
            rates = " ".join(f"{r.attack} {r.accuracy.rate:.0%}" for r in results.results)
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
            evaluate(model, images, labels, eps=8 / 255)
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
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.sound:
        sound(asked.names)
    elif asked.cost:
        cost(asked.rounds)
    else:
        table(asked.count, asked.names)


if __name__ == "__main__":
    main()
