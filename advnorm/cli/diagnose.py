"""``advnorm diagnose``: ask why a model works or fails."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, Set
from advnorm.cli.output import echo


def diagnose(
    run: Annotated[str, typer.Argument(help="A run folder, or your model: FILE.py:NAME.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUESTION...", help="Names from 'advnorm list questions'."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Ask every question.")] = False,
    samples: Annotated[int, typer.Option(min=2, help="Number of test samples.")] = 200,
    set_: Set = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Ask why a model works or fails: curvature, dead units, moments, ...

    --set QUESTION.OPTION=VALUE changes a question, evaluation.KEY the weights or branch.
    For a model of your own, --set data.name=NAME and threat.eps=EPS too.

    Example: advnorm diagnose runs/pgd hessian distances --set hessian.steps=20
    """
    from advnorm.cli.settings import WEIGHTS, changed_recipe, evaluation_settings
    from advnorm.cli.user_model import diagnose_user_model, is_user_model
    from advnorm.diagnosis import QUESTIONS
    from advnorm.progress import show_progress
    from advnorm.records import Run
    from advnorm.runs import diagnose_run, parse_questions

    if not names and not all_:
        raise ValueError("name a question of 'advnorm list questions', or write --all")
    own = is_user_model(run)
    of_recipe = ("evaluation.", "data.", "threat.") if own else ("evaluation.",)
    settings = [change for change in set_ or [] if change.startswith(of_recipe)]
    options = [change for change in set_ or [] if not change.startswith(of_recipe)]
    evaluation_settings([s for s in settings if s.startswith("evaluation.")], WEIGHTS)
    chosen = parse_questions(list(QUESTIONS) if all_ else names or [], options)
    with show_progress() as progress:
        if own:
            for diagnosis in diagnose_user_model(
                run,
                settings,
                chosen,
                samples=samples,
                skip=all_,
                root=data,
                device=device,
                progress=progress,
            ):
                echo(str(diagnosis))
            return
        opened = Run.open(Path(run))
        for diagnosis in diagnose_run(
            opened,
            changed_recipe(opened, settings),
            chosen,
            samples=samples,
            skip=all_,
            root=data,
            device=device,
            progress=progress,
        ):
            echo(str(diagnosis))
    echo(f"next: advnorm report {run} --out report.html")
