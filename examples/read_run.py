"""Read a run folder with the standard library: nothing of advnorm is imported.

Command: python examples/read_run.py runs/a
Cost: less than a second.
Prints: the names in the recipe, one line an epoch, one line a result, and the samples that
each attack broke.

recipe.yaml is plain YAML (any YAML reader takes all of it). Everything else is JSON, which
is described in docs/how-to/evaluation.md.
"""

import json
import sys
from pathlib import Path
from typing import Any


def percent(accuracy: dict[str, int]) -> str:
    """Return an accuracy, which is stored as two counts."""
    return f"{accuracy['correct'] / accuracy['n']:.1%} n={accuracy['n']}"


def read(path: Path) -> Any:
    """Return what a JSON file holds."""
    return json.loads(path.read_text())


if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "recipe.yaml").is_file():
    sys.exit("give a run folder: python examples/read_run.py FOLDER")
run = Path(sys.argv[1])

# The recipe: what was trained.
section = ""
for line in (run / "recipe.yaml").read_text().splitlines():
    if not line.startswith((" ", "-")):
        section = line.partition(":")[0]
    if line.startswith(("seed:", "epochs:")):
        print(line)
    elif line.startswith("  name:"):
        print(f"{section}: {line.removeprefix('  name: ')}")

# The metrics: one JSON object a line. A stopped run may end in half a line.
metrics = run / "metrics.jsonl"
for line in metrics.read_text().splitlines(keepends=True) if metrics.exists() else []:
    if line.endswith("\n"):
        epoch = json.loads(line)
        print(f"epoch {epoch['epoch']}: loss {epoch['loss']:.4f}", end="")
        print(f", train {percent(epoch['train'])}", end="")
        clean, robust = epoch["validation_clean"], epoch["validation_robust"]
        print(f", validation clean {percent(clean)}" if clean else "", end="")
        print(f", robust {percent(robust)}" if robust else "")

# The results, and one verdict a sample beside each. `by` is the attack that broke it.
for path in sorted((run / "results").glob("*.json")):
    result = read(path)
    print(f"{path.stem}: {percent(result['accuracy'])}", *result["flags"])
    verdicts = read(run / "verdicts" / path.name)
    pairs = zip(verdicts["samples"], verdicts["by"], strict=True)
    broken = [sample for sample, attack in pairs if attack]
    if result["threat"]:
        print(f"  broken samples: {', '.join(map(str, broken)) or 'none'}")
