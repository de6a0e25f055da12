"""Counts what every table and figure costs at every scale, and keeps it in the package.

    python benchmarks/costs.py [PAPER...] [--check]

With papers named, only their artefacts are counted anew. Recipes that differ in nothing
that costs are counted once. ``--check`` writes nothing and exits with 1 where kept counts
are not those of the artefacts.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from advnorm import papers
from advnorm.papers.cost import cost
from advnorm.recipe import Constant, Recipe, override
from advnorm.records import SCALES
from advnorm.runs.plan import Plan, plan
from advnorm.training.components import weight_schedules

FILE = Path(papers.__file__).with_name("costs.json")
FREE = [
    "name=any",
    "seed=0",
    "validation={}",
    "evaluation={}",
    "perturbation={}",
    "monitor={}",
    "norm.freeze_epochs=0",
    "optimizer.accumulate=1",
]
"""What does not change the operations of training."""


class Counted:
    """Plans by what costs."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}

    def __call__(self, recipe: Recipe) -> Plan:
        """Return a recipe's plan, counted once for all that cost the same."""
        epochs = 1 if _alike(recipe) else recipe.epochs
        bare = override(recipe, [*FREE, f"epochs={epochs}"])
        key = bare.model_dump_json(
            exclude={"optimizer": {"lr", "schedule", "weight_decay"}}
        )
        if key not in self.plans:
            self.plans[key] = plan(bare)
        found = self.plans[key]
        training = found.training * (recipe.epochs // epochs)
        return replace(found, epochs=recipe.epochs, training=training)


def _alike(recipe: Recipe) -> bool:
    """Tell whether no schedule changes what an epoch costs."""
    schedules = (recipe.threat.schedule, recipe.attack.steps_schedule)
    return not weight_schedules(recipe) and all(one == Constant() for one in schedules)


def main() -> None:
    """Count and write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    count, found = Counted(), {}
    if arguments.papers:
        found = json.loads(FILE.read_text())
    for name in papers.ARTEFACTS:
        if arguments.papers and name.partition("/")[0] not in arguments.papers:
            continue
        artefact = papers.ARTEFACTS[name]
        costs = {scale: cost(artefact, scale, count) for scale in SCALES}
        found[name] = {scale: one.model_dump() for scale, one in costs.items()}
        told = ", ".join(f"{s} {c.runs} runs {c.operations:.3g}" for s, c in costs.items())
        print(f"{name}: {told}", flush=True)
    text = json.dumps(found, indent=1) + "\n"
    if arguments.check:
        raise SystemExit(FILE.read_text() != text)
    FILE.write_text(text)


if __name__ == "__main__":
    main()
