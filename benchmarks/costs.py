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
    "optimizer={accumulate: 1, together: null}",
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
        counts = self.plans[key]
        training = counts.training * (recipe.epochs // epochs)
        return replace(counts, epochs=recipe.epochs, training=training)


def _alike(recipe: Recipe) -> bool:
    """Tell whether no schedule changes what an epoch costs."""
    schedules = (recipe.threat.schedule, recipe.attack.steps_schedule)
    return not weight_schedules(recipe) and all(
        schedule == Constant() for schedule in schedules
    )


def main() -> None:
    """Count and write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    count, recorded = Counted(), {}
    if arguments.papers:
        recorded = json.loads(FILE.read_text())
    for name in papers.ARTEFACTS:
        if arguments.papers and name.partition("/")[0] not in arguments.papers:
            continue
        artefact = papers.ARTEFACTS[name]
        costs = {scale: cost(artefact, scale, count) for scale in SCALES}
        recorded[name] = {scale: c.model_dump() for scale, c in costs.items()}
        summary = ", ".join(
            f"{s} {c.runs} runs {c.operations:.3g}" for s, c in costs.items()
        )
        print(f"{name}: {summary}", flush=True)
    text = json.dumps(recorded, indent=1) + "\n"
    if arguments.check:
        raise SystemExit(FILE.read_text() != text)
    FILE.write_text(text)


if __name__ == "__main__":
    main()
