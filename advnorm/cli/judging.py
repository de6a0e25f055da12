"""Commands that judge runs, and ask why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advnorm.cli.base import Device, Root, Runs, Set, app, echo, leads, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from advnorm.recipe import Recipe
    from advnorm.records import Result, Run

_WHICH = ("weights", "branch")
_LOOK = ("samples", "batch_size", *_WHICH)
_RADII = ("threat.eps", "threat.norm")
_OWN_RADIUS = ["evaluation.threat={}"]  # where --set names no other


@app.command()
def evaluate(
    runs: Runs,
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
    baseline: Annotated[
        Path | None, typer.Option(help="The run that corruption errors are divided by.")
    ] = None,
) -> None:
    """Attack the models of runs; --set changes their 'evaluation' settings."""
    from advnorm.records import Run
    from advnorm.report import corruption_errors
    from advnorm.runs import assess

    reference = Run.open(baseline) if baseline else None
    found = _judged(runs, _of_evaluation(set_), assess, data, device)
    for run in found:
        for line in corruption_errors(run, reference):
            say(f"{run.path}: {line}")
    say(f"next: advnorm report {' '.join(map(str, runs))} --out report.html")


@app.command()
def certify(
    runs: Runs,
    method: Annotated[str, typer.Option(help="ibp, crown-ibp or crown.")] = "crown",
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Verify the models of runs; --set as in 'evaluate', such as eps=[0.3]."""
    from advnorm.bounds import METHODS
    from advnorm.registry import unknown

    if method not in METHODS:
        raise unknown("certificate", method, list(METHODS))
    changes = _of_evaluation(set_, (*_RADII, "data", *_LOOK))
    evaluate(runs, [*changes, f"conditions=[{method}]"], device, data)


@app.command()
def transfer(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Attack each run (pgd-40), and judge all of them on it; --set as in 'evaluate'."""
    import json

    from advnorm.files import write_alone
    from advnorm.progress import shown
    from advnorm.records import Run
    from advnorm.runs import transfer_runs

    known = ("conditions", *_RADII, "step_ratio", *_LOOK)
    settings = _of_evaluation(set_, known)
    changes = ["evaluation.conditions=[pgd-40]", *_OWN_RADIUS, *settings]
    found = [Run.open(path) for path in runs]
    recipes = [_changed(run, changes) for run in found]
    with shown() as progress:
        made = transfer_runs(found, recipes, root=data, device=device, progress=progress)
    say("\n\n".join(map(str, made)))
    if out is not None and leads():
        records = [matrix.model_dump(mode="json") for matrix in made]
        write_alone(out, json.dumps(records, indent=1).encode())


@app.command()
def perturb(
    runs: Runs,
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Perturb batch-norm statistics; --set changes 'perturbation', or evaluation.KEY."""
    from advnorm.runs import perturb_run as run_perturbation

    given = set_ or []
    of_evaluation = [change for change in given if change.startswith("evaluation.")]
    own = [change for change in given if change not in of_evaluation]
    changes = [f"perturbation.{change.removeprefix('perturbation.')}" for change in own]
    changes += _of_evaluation(of_evaluation, _LOOK)
    _judged(runs, changes, run_perturbation, data, device)


@app.command()
def audit(
    runs: Runs,
    suite: Annotated[
        str, typer.Option(help="Strong attacks, by commas; 'standard' is AutoAttack.")
    ] = "apgd_ce-50,apgd_t-20,square-500",
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Ask whether the robustness of runs is real, and flag their results if not.

    --set eps=[0.1, 0.2] audits at other radii than the recipe's; samples=500 more images.
    """
    from advnorm.progress import shown
    from advnorm.records import Run
    from advnorm.runs import audit_run

    changes = [*_OWN_RADIUS, *_of_evaluation(set_, (*_RADII, *_LOOK))]
    found = [Run.open(path) for path in runs]
    names = tuple(name.strip() for name in suite.split(","))
    with shown() as progress:
        for run in found:
            recipe = _changed(run, changes)
            audits = audit_run(
                run, recipe, suite=names, root=data, device=device, progress=progress
            )
            echo("\n".join([f"{run.path}:", *map(str, audits)]))


@app.command()
def diagnose(
    run: Annotated[str, typer.Argument(help="A run folder, or your model: FILE.py:NAME.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="Names of 'advnorm list questions'."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Ask every question.")] = False,
    samples: Annotated[int, typer.Option(min=2, help="How many test samples.")] = 200,
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Ask why a model works or fails; --set QUESTION.OPTION=VALUE, evaluation.KEY.

    Of your own model: --set data.name=NAME and threat.eps=EPS too.
    """
    from functools import partial

    from advnorm.cli.own import is_own, own_model
    from advnorm.diagnosis import QUESTIONS
    from advnorm.progress import shown
    from advnorm.recipe import Recipe, override
    from advnorm.records import Run
    from advnorm.runs import diagnose_model, diagnose_run, questions

    if not names and not all_:
        raise ValueError("name a question of 'advnorm list questions', or write --all")
    own = is_own(run)
    of_recipe = ("evaluation.", "data.", "threat.") if own else ("evaluation.",)
    settings = [change for change in set_ or [] if change.startswith(of_recipe)]
    options = [change for change in set_ or [] if not change.startswith(of_recipe)]
    _of_evaluation([s for s in settings if s.startswith("evaluation.")], _WHICH)
    asked = questions(list(QUESTIONS) if all_ else names or [], options)
    if own:
        recipe = override(Recipe(name=run), settings)
        ask = partial(diagnose_model, own_model(run), recipe)
    else:
        found = Run.open(Path(run))
        ask = partial(diagnose_run, found, _changed(found, settings))
    with shown() as progress:
        for diagnosis in ask(
            asked, samples=samples, skip=all_, root=data, device=device, progress=progress
        ):
            echo(str(diagnosis))
    if not own:
        echo(f"next: advnorm report {run} --out report.html")


def _judged(
    runs: list[Path],
    changes: list[str],
    judge: "Callable[..., list[Result]]",
    data: Path | None,
    device: str,
) -> "list[Run]":
    """Judge runs by their recipes with some settings changed, and print what came of it."""
    from advnorm.progress import shown
    from advnorm.records import Run
    from advnorm.report import comparison_text

    found = [Run.open(path) for path in runs]
    with shown() as progress:
        for run in found:
            recipe = _changed(run, changes)
            progress.line(f"{run.path}:")
            judge(run, recipe, root=data, device=device, progress=progress)
    say(comparison_text(found))
    return found


def _of_evaluation(
    changes: list[str] | None, known: "Sequence[str] | None" = None
) -> list[str]:
    """Name the settings of an evaluation in full, whether they were or not.

    A command that looks at some of them alone refuses the others: they would be lost.
    """
    from advnorm.recipe import assignment, full_key
    from advnorm.registry import unknown

    full = []
    for change in changes or []:
        path, _ = assignment(change)
        key = full_key(".".join(path), "evaluation")
        name = key.removeprefix("evaluation.")
        if known is not None and name not in known:
            raise unknown("evaluation setting of this command called", name, list(known))
        full.append(f"{key}={change.partition('=')[2]}")
    return full


def _changed(run: "Run", changes: list[str]) -> "Recipe":
    """Return a run's recipe with some settings changed."""
    from advnorm.recipe import override, read

    return override(read(run.path / "recipe.yaml"), changes)
