"""Standard training, SAM, APART and APART-SAM on a CIFAR-10 image folder; resumable.

    python benchmarks/apart_grid.py --data FOLDER --out runs/apart [--seeds 3] [--threads 1]

FOLDER holds ``train/CLASS/*`` and ``test/CLASS/*``. After apart2022, Table 1 and Figure 2:
each method at its budget in passes, then the accuracy with perturbed batch-norm statistics
over a list of radii. Runs that are finished are not run again. At the end the tables are
printed as Markdown: mean and standard error over seeds, in points, and how many seeds.
``--print`` prints them of the runs that are there.
"""

import argparse
from pathlib import Path
from statistics import mean, stdev

import torch

from advnorm.progress import Plain
from advnorm.recipe import Recipe, override
from advnorm.records import Run
from advnorm.runs import evaluate_run, perturb_run
from advnorm.training import train

EPOCHS = 25
RADII = (0.1, 0.2, 0.3, 0.4, 0.5)
CURVES = {"sign": ("mean", "deviation"), "adversarial": ("both",)}
METHODS = {
    "standard 1x": [],
    "standard 2x": [f"epochs={2 * EPOCHS}", "SCHEDULE"],
    "SAM": ["gradient={name: sam, rho: 0.05}"],
    "APART": ["gradient={name: apart, eps: 0.1, groups: 16}"],
    "APART-SAM": ["gradient={name: apart_sam, eps: 0.1, rho: 0.05, groups: 16}"],
}


def schedule(epochs: int) -> str:
    """Divide the rate by 10 after half and three quarters of the epochs, as apart2022."""
    at = [epochs * 0.5, epochs * 0.75]
    return f"optimizer.schedule={{kind: piecewise, at: {at}}}"


def recipe_of(method: str, seed: int, data: Path) -> Recipe:
    """Return what one cell trains: apart2022 4.1, smaller in every way."""
    common = [
        f"name=apart {method}",
        f"seed={seed}",
        f"data={{name: 'folder:{data}', size: 16, train: 5000, test: 2000, workers: 0}}",
        "data.augment=crop_flip",
        "model={name: wide_resnet, options: {depth: 10, widen: 1}}",
        "channels_last=true",
        "objective.name=standard",
        "threat.eps=8/255",
        "optimizer={lr: 0.1, momentum: 0.9, weight_decay: 5e-4}",
        schedule(EPOCHS),
        f"epochs={EPOCHS}",
        "batch_size=128",
        "validation={every: 1000, samples: 500, steps: 1, select_by: clean}",
        "evaluation={conditions: [clean], weights: last, batch_size: 500}",
    ]
    changes = [
        schedule(2 * EPOCHS) if change == "SCHEDULE" else change
        for change in METHODS[method]
    ]
    return override(Recipe(), [*common, *changes])


def folder(out: Path, method: str, seed: int) -> Path:
    """Name the run folder of one cell."""
    return out / f"{method.replace(' ', '_')}-{seed}"


def one(method: str, seed: int, data: Path, out: Path) -> None:
    """Train and evaluate one cell, or go on with it."""
    recipe, path = recipe_of(method, seed, data), folder(out, method, seed)
    begun = (path / "recipe.yaml").exists()
    run = train(recipe, path, resume=begun, device="cpu", progress=Plain())
    evaluate_run(run, recipe, device="cpu", progress=Plain())
    for direction, kinds in CURVES.items():
        what = f"{{radii: {list(RADII)}, directions: [{direction}], parts: {list(kinds)}}}"
        changed = override(recipe, [f"perturbation={what}"])
        perturb_run(run, changed, device="cpu", progress=Plain())


def cell(out: Path, method: str, seeds: int, key: str) -> str:
    """Return mean and standard error over the seeds that are there."""
    runs = [Run(folder(out, method, seed)) for seed in range(seeds)]
    results = [run.result(key) for run in runs if run.path.exists()]
    rates = [100 * result.accuracy.fraction for result in results if result]
    if not rates:
        return "-"
    error = f" ± {stdev(rates) / len(rates) ** 0.5:.1f}" if len(rates) > 1 else ""
    return f"{mean(rates):.1f}{error} ({len(rates)})"


def tables(out: Path, seeds: int) -> str:
    """Return the accuracies, clean and over the radii, as Markdown."""
    head = " | ".join(f"{radius:g}" for radius in RADII)
    lines = []
    for direction, kinds in CURVES.items():
        for part in kinds:
            lines.append(f"\n| {direction}, {part} | 0 | {head} |")
            lines.append("|---" * (len(RADII) + 2) + "|")
            keys = [f"statistics-{direction}_{part}_{radius:.4g}" for radius in RADII]
            for method in METHODS:
                cells = [cell(out, method, seeds, key) for key in ("clean", *keys)]
                lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the grid, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="only print what is there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for seed in range(0 if arguments.print else arguments.seeds):
        for method in METHODS:
            one(method, seed, arguments.data.resolve(), arguments.out)
    print(tables(arguments.out, arguments.seeds))


if __name__ == "__main__":
    main()
