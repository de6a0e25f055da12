"""Every norm with every objective on a small MNIST problem, eps 0.3; resumable.

    python benchmarks/norm_grid.py --out runs/grid --data FOLDER [--seeds 2] [--threads 2]

Runs that are finished are not run again; a combination that makes no sense is named with
its sentence. At the end the table is printed as Markdown, one row a norm and objective.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

from advnorm.progress import Plain
from advnorm.recipe import Recipe, RecipeError, override
from advnorm.recipes import find
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import NotFiniteError, train

NORMS = {
    "batch": ["norm.name=batch"],
    "mixture": ["norm.name=mixture"],
    "dual (likelihood 1)": ["norm.name=dual"],
    "dual (likelihood 0.01)": ["norm.name=dual", "objective.likelihood=0.01"],
    "borrowed (clean)": ["norm.name=borrowed", "norm.options.lender=clean"],
    "borrowed (adversarial)": ["norm.name=borrowed", "norm.options.lender=adversarial"],
    "group (8)": ["norm.name=group", "norm.options.groups=8"],
    "none": ["norm.name=none"],
}
OBJECTIVES = {
    "pgd": ["objective.name=pgd"],
    "mixed sequential": ["objective={name: mixed, batching: sequential}"],
    "mixed concatenated": ["objective={name: mixed, batching: concatenated}"],
    "trades": ["objective={name: trades, batching: concatenated}"],
    "mixed_kl": ["objective={name: mixed_kl, batching: concatenated}"],
}
COLUMNS = ("clean", "pgd-40_linf_0.3")


def folder(out: Path, norm: str, objective: str, seed: int) -> Path:
    """Name the run folder of one cell."""
    name = f"{norm}-{objective}-{seed}".translate(str.maketrans(" ", "_", "()"))
    return out / name


def one(recipe: Recipe, path: Path, root: Path | None) -> str:
    """Train and evaluate one cell; return why it was not, if it was not."""
    begun = (path / "recipe.yaml").exists()
    try:
        run = train(recipe, path, root=root, resume=begun, progress=Plain())
        evaluate_run(run, recipe, root=root, progress=Plain())
    except (RecipeError, NotFiniteError) as error:
        return str(error)
    return ""


def cell(runs: list[Run], column: str) -> str:
    """Return mean and standard error over seeds; of a mixture, each branch."""
    shown = []
    for branch in ("", "@adversarial", "@clean"):
        results = [run.result(column + branch) for run in runs]
        rates = [100 * result.accuracy.fraction for result in results if result]
        if rates:
            error = f" ± {stdev(rates) / len(rates) ** 0.5:.1f}" if len(rates) > 1 else ""
            shown.append(f"{mean(rates):.1f}{error}{' ' * bool(branch)}{branch[1:4]}")
    return ", ".join(shown) or "-"


def table(out: Path, seeds: int, refused: dict[tuple[str, str], str]) -> str:
    """Return the results as Markdown."""
    lines = ["| objective | norm | seeds | clean | PGD-40, ε 0.3 |"]
    lines.append("|---|---|---|---|---|")
    for objective in OBJECTIVES:
        for norm in NORMS:
            if (norm, objective) in refused:
                lines.append(f"| {objective} | {norm} | | refused | |")
                continue
            paths = [folder(out, norm, objective, seed) for seed in range(seeds)]
            runs = [Run(path) for path in paths if Run(path).results()]
            cells = " | ".join(cell(runs, column) for column in COLUMNS)
            lines.append(f"| {objective} | {norm} | {len(runs)} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Run the grid, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    refused: dict[tuple[str, str], str] = {}
    for seed in range(arguments.seeds):
        for objective, its in OBJECTIVES.items():
            for norm, ours in NORMS.items():
                recipe = override(find("mnist.norms"), [*its, *ours, f"seed={seed}"])
                path = folder(arguments.out, norm, objective, seed)
                reason = one(recipe, path, arguments.data)
                if reason:
                    refused[norm, objective] = reason
                    print(f"{norm} x {objective}: {reason}", flush=True)
    print(table(arguments.out, arguments.seeds, refused))


if __name__ == "__main__":
    main()
