"""Four reports of real runs on digits: one run, many runs, a study and a paper.

Trainings are tiny; what is done with the runs is everything that a report can show.
"""

import shutil
from pathlib import Path

from advnorm.files import locked
from advnorm.papers import Workspace, reproduce
from advnorm.recipe import Recipe, override
from advnorm.recipes import find
from advnorm.records import Run, Study, read_record
from advnorm.report import write, write_paper_pages, write_study
from advnorm.runs import audit_run, certify_run, diagnose_run, evaluate_run, parse_questions
from advnorm.studies import study
from advnorm.training import train

KEPT = Path(__file__).parents[2] / "docs" / "results"
KEPT_RECORDS = (
    "galloway2019/figure1-full.json",  # with lines
    "galloway2019/figure11-full.json",  # with images
    "galloway2019/table2-reduced.json",
)
TINY = (
    "data.train=200",
    "data.test=60",
    "epochs=3",
    "attack.steps=3",
    "validation={samples: 40, steps: 2}",
    "evaluation={conditions: [clean, noise-0.1, fgsm, pgd-5], "
    "threat: {eps: [0.05, 0.1]}, examples: 4}",
)
MIXTURE = (
    "norm.name=mixture",
    "objective.name=mixed",
    "monitor={every: 4, questions: [gradient_norm]}",
)
ATTACKS = "evaluation.conditions=[clean, fgsm, 'pgd-1..10', quick]"
CERTIFICATE = "evaluation.threat.eps=[0.002, 0.01, 0.05]"
QUESTIONS = ("distances", "dead", "pca")
WEAK = ("distances.suite=pgd-3", "pca.suite=pgd-3")
NAMES = ("one", "many", "study", "paper")


def page_of(folder: Path, name: str) -> Path:
    """Return where :func:`make` writes a report."""
    return (
        folder / "paper" / "galloway2019.html"
        if name == "paper"
        else folder / f"{name}.html"
    )


def make_once(folder: Path) -> dict[str, Path]:
    """Return the page of each report; one of several processes makes them."""
    folder.mkdir(exist_ok=True)
    with locked(folder.with_suffix(".lock"), wait=True):
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return {name: page_of(folder, name) for name in NAMES}


def make(folder: Path) -> None:
    """Train, evaluate, diagnose and reproduce; write the four pages."""
    base = override(find("digits.pgd"), list(TINY))
    study(base, {"norm.name": ["batch", "none"]}, seeds=3, out=folder / "study")
    _mixture(base, folder / "mixture")
    _plain(base, folder / "plain")
    (folder / "paper" / "galloway2019").mkdir(parents=True)
    for name in KEPT_RECORDS:
        shutil.copy(KEPT / name, folder / "paper" / name)
    reproduce("galloway2019/table1", Workspace(folder / "paper"), scale="smoke", seeds=1)
    write_pages(folder)


def write_pages(folder: Path) -> None:
    """Write the four pages."""
    record = read_record(folder / "study" / "study.json", Study)
    studied = [Run.open(path) for path in sorted((folder / "study" / "runs").iterdir())]
    plain, mixture = (Run.open(folder / name) for name in ("plain", "mixture"))
    write([plain], page_of(folder, "one"))
    write([*studied, plain, mixture], page_of(folder, "many"))
    write_study(record, page_of(folder, "study"))
    write_paper_pages(folder / "paper")


def _plain(base: Recipe, out: Path) -> None:
    """Train a run of which everything is known."""
    run = train(override(base, ["name=plain", "seed=7"]), out, device="cpu")
    evaluate_run(run, override(base, [ATTACKS]), device="cpu")
    certify_run(run, override(base, [CERTIFICATE]), method="crown", device="cpu")
    audit_run(run, override(base, ["evaluation.samples=8"]), suite=("pgd-2",), device="cpu")
    questions = parse_questions(QUESTIONS, WEAK)
    list(diagnose_run(run, base, questions, samples=40, device="cpu"))


def _mixture(base: Recipe, out: Path) -> None:
    """Train a run whose two branches have answers of their own."""
    recipe = override(base, ["name=mixture", *MIXTURE])
    run = train(recipe, out, device="cpu")
    for branch in ("adversarial", "clean", "worst"):
        one = override(recipe, [f"evaluation.branch={branch}"])
        evaluate_run(run, one, device="cpu")
