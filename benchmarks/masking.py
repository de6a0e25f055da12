"""Layers that mask gradients: what is claimed, and what an adaptive search leaves.

    python benchmarks/masking.py                    # rows of the table, on digits
    python benchmarks/masking.py --data mnist       # on MNIST from ADVNORM_DATA
    python benchmarks/masking.py --public FILE      # in a public network for MNIST
    python benchmarks/masking.py --show FILE        # the table of a record

The base is a small CNN that the command trains against PGD, once; each layer of
``masking_layers`` is planted in it. Rows are written to ``--out`` one by one, and those
that are there are not measured again. ``--public`` takes weights of auto_LiRPA's
``examples/vision/pretrained`` (``mnist_a_adv.pth``) instead.

Columns: ``claimed`` is what PGD-20 leaves, ``standard`` AutoAttack's suite on the masked
model as it is, ``planted`` the share of planted adversarial examples that PGD-20 finds, and
after the arrow the attacks with the slot. ``adaptive`` is the worst case over ``standard``
and the attacks with the slot (of a randomized model: the mean over draws under the slot
alone), ``base`` the unmasked network under ``standard``. ``flags`` are those of an audit's
checks that need no attack.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from masking_layers import DRAWS, MASKS, Base, Mask
from public_models import load_public
from torch import nn

from advnorm.data import Batch
from advnorm.evaluation import Condition, audit, parse_conditions, run_condition
from advnorm.evaluation.adaptation import bind
from advnorm.evaluation.adaptive_stages import adapt_conditions
from advnorm.evaluation.checks.outputs import PROBES
from advnorm.evaluation.planted import SAMPLES, planted_test
from advnorm.recipe import Recipe, override
from advnorm.recipes import find
from advnorm.records import Accuracy, Run, Verdicts
from advnorm.runs.load import load_trained
from advnorm.threat import Linf, Threat
from advnorm.training import train
from advnorm.training.components import load_data

CHECKED = (*PROBES, "piecewise_constant", "masking_layers", "unstable_predictions")
SETTINGS = {
    "digits": (0.15, ["data.size=16", "epochs=20"]),
    "mnist": (0.3, ["data.name=mnist", "data.train=6000", "epochs=8"]),
}
"""Radius, and settings of the recipe ``digits.pgd``."""
COLUMNS = ("clean", "claimed", "standard", "planted", "adaptive", "base")


def recipe_of(data: str) -> Recipe:
    """Return how the base network is trained."""
    eps, settings = SETTINGS[data]
    network = ["model.name=cnn_small", "model.options={width: 16}", f"threat.eps={eps}"]
    return override(find("digits.pgd"), [*network, *settings])


def trained(data: str, folder: Path, count: int) -> tuple[Base, Batch]:
    """Return the base network, trained if the folder has none, and test samples."""
    recipe = recipe_of(data)
    run = train(recipe, folder, device="cpu") if not folder.exists() else Run.open(folder)
    loaded = load_data(recipe, root=None)
    model, _, _ = load_trained(run, recipe, loaded, weights="last", warnings=[])
    rows = torch.arange(500)
    images = next(loaded.train.batches(rows, batch_size=500, device=None)).images
    test = next(loaded.test.batches(torch.arange(count), batch_size=count, device=None))
    return Base(model.eval(), images, len(loaded.classes)), test


def public(path: Path, count: int) -> tuple[Base, Batch]:
    """Return a public network; its moments are those of test samples beyond the first."""
    model, images, labels = load_public(path)
    rows = slice(0, count)
    test = Batch(images[rows], labels[rows], torch.arange(count))
    return Base(model, images[500:], 10), test


def measure(mask: Mask, base: Base, test: Batch, threat: Threat) -> dict:
    """Return the numbers of a row."""
    torch.manual_seed(0)
    model = mask.plant(base).eval()
    plain = _verdicts(model, test, ("clean", "pgd-20", "standard"), threat)
    clean, claimed, standard = plain
    row = {
        "clean": clean.accuracy().fraction,
        "claimed": claimed.accuracy().fraction,
        "standard": standard.accuracy().fraction,
        "flags": list(
            audit(model, test.images, test.labels, threat, checks=CHECKED).flagged
        ),
        "adapt": _described(mask),
    }
    searched = _verdicts(model, test, mask.attacks, threat, mask)
    if searched[0].draws:
        summaries = [verdicts.draws_summary() for verdicts in searched]
        worst = min(summaries, key=lambda summary: summary.mean)
        row["adaptive"], interval = worst.mean, (worst.low, worst.high)
        row["drawn"] = [worst.lowest.fraction, worst.highest.fraction]
    else:
        robust = [
            all(rows)
            for rows in zip(*(v.robust for v in [standard, *searched]), strict=True)
        ]
        accuracy = Accuracy(correct=sum(robust), n=len(robust))
        row["adaptive"], interval = accuracy.fraction, accuracy.interval
    row |= {"interval": list(interval), "sound": mask.sound}
    return row | {"planted": planted(mask, model, test, threat)}


def planted(
    mask: Mask, model: nn.Module, test: Batch, threat: Threat
) -> list[float | None]:
    """Return the share of planted examples that PGD-20 finds, and that with the slot."""
    few = Batch(*(tensor[:SAMPLES] for tensor in test))
    shares = []
    for names, own in ((("pgd-20",), None), (mask.attacks, mask)):
        conditions = _conditions(model, few, names, threat, own)
        torch.manual_seed(0)
        success = planted_test(model, few.images, few.labels, threat, conditions).success
        shares.append(success.fraction if success.n else None)
    return shares


def _verdicts(
    model: nn.Module,
    test: Batch,
    names: Sequence[str],
    threat: Threat,
    mask: Mask | None = None,
) -> list[Verdicts]:
    """Test the samples under each condition, without what an evaluation adds."""
    conditions = _conditions(model, test, names, threat, mask)
    return [run_condition(model, [test], c, total=len(test.labels)) for c in conditions]


def _conditions(
    model: nn.Module, test: Batch, names: Sequence[str], threat: Threat, mask: Mask | None
) -> list[Condition]:
    shape = test.images.shape[1:]
    conditions = parse_conditions(names, [threat], threat.bounds, shape=shape)
    if mask is None:
        return conditions
    return adapt_conditions(conditions, bind(mask.adapt, model, test.images))


def _described(mask: Mask) -> str:
    parts = [f"{layer}: {name}" for layer, name in mask.adapt.layers.items()]
    parts += [f"draws={mask.adapt.draws}"] if mask.adapt.draws > 1 else []
    parts += [f"loss={mask.adapt.loss}"] if mask.adapt.loss else []
    return ", ".join(parts) or "–"


def run(
    name: str, base: Base, test: Batch, eps: float, out: Path, names: list[str]
) -> dict:
    """Measure the rows that the record does not have, and write each."""
    record = json.loads(out.read_text()) if out.exists() else {}
    record |= {"base": name, "eps": eps, "n": len(test.labels), "torch": torch.__version__}
    rows = record.setdefault("rows", {})
    for title, mask in MASKS.items():
        chosen = not names or any(word in title for word in names)
        if chosen and title not in rows:
            rows[title] = measure(mask, base, test, Linf(eps))
            rows = {title: rows[title] for title in MASKS if title in rows}
            record["rows"] = rows
            temporary = out.with_suffix(".tmp")
            temporary.write_text(json.dumps(record, indent=1) + "\n")
            temporary.replace(out)
            print(title, {k: v for k, v in rows[title].items() if k in COLUMNS}, flush=True)
    return record


def table(record: dict) -> str:
    """Return the record as a table."""
    base = record["rows"]["(none)"]["standard"]
    lines = [
        f"{record['base']}, Linf, eps {record['eps']:g}, n={record['n']}, {DRAWS} draws of "
        f"randomized models, one seed, torch {record['torch']}",
        "",
        "| layer | clean | claimed | standard | planted | adaptive | base | slot | flags |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for title, row in record["rows"].items():
        found = " → ".join(map(_percent, row["planted"]))
        values = {**row, "base": base}
        cells = [found if c == "planted" else _percent(values[c]) for c in COLUMNS]
        low, high = (100 * end for end in row["interval"])
        cells[4] += f" [{low:.0f}, {high:.0f}]"
        flags = ", ".join(row["flags"][:2]) or "no flag"
        more = f" and {len(row['flags']) - 2} more" if len(row["flags"]) > 2 else ""
        lines.append(f"| {title} | {' | '.join(cells)} | {row['adapt']} | {flags}{more} |")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def main() -> None:
    """Choose."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names: only these rows")
    parser.add_argument("--data", choices=sorted(SETTINGS), default="digits")
    parser.add_argument("--public", type=Path, help="weights of auto_LiRPA for MNIST")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/masking"))
    parser.add_argument("--show", type=Path, help="print the table of this record")
    asked = parser.parse_args()
    if asked.show:
        print(table(json.loads(asked.show.read_text())))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    name = asked.public.stem if asked.public else f"cnn_small on {asked.data}"
    if asked.public:
        (base, test), eps = public(asked.public, asked.count), SETTINGS["mnist"][0]
    else:
        folder = asked.out / f"base-{asked.data}"
        (base, test), eps = (
            trained(asked.data, folder, asked.count),
            SETTINGS[asked.data][0],
        )
    record = asked.out / f"{asked.public.stem if asked.public else asked.data}.json"
    print(table(run(name, base, test, eps, record, asked.names)))


if __name__ == "__main__":
    main()
