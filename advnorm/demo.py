"""The demo: four small models on real digits, with and without batch norm, attacked."""

from pathlib import Path

from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.recipes import find
from advnorm.records import Run
from advnorm.report import comparison_text, write
from advnorm.runs import evaluate_run
from advnorm.training import train

NAMES = ("digits.standard", "digits.standard_none", "digits.pgd", "digits.pgd_none")
SEEDS = (0, 1)


def run(out: Path, *, progress: Progress) -> Path:
    """Train, attack and report; a demo that was stopped resumes."""
    runs = []
    for name in NAMES:
        for seed in SEEDS:
            recipe = find(name).replace(seed=seed)
            progress.line(f"{name}, seed {seed}")
            runs.append(_train_and_evaluate(recipe, out / f"{name}-{seed}", progress))
    progress.line(comparison_text(runs))
    return write(runs, out / "report.html")


def closing(report: Path) -> str:
    """Return what the report shows and what to try next."""
    return (
        f"{report} compares four models: the ones trained on clean images lose most of "
        "their accuracy under PGD, the ones trained against PGD keep much of it, and each "
        "pair shows what batch norm changes.\n"
        "Next, try another norm and radius: advnorm train digits.pgd "
        "--set norm.name=group --set threat.eps=0.1 --out runs/group"
    )


def _train_and_evaluate(recipe: Recipe, out: Path, progress: Progress) -> Run:
    begun = (out / "recipe.yaml").exists()
    trained = train(recipe, out, device="cpu", resume=begun, progress=progress)
    evaluate_run(trained, recipe, device="cpu", progress=progress)
    return trained
