"""``advnorm diagnose``: ask why a model works or fails."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Device, KeepIn, Set
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
    out: KeepIn = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Ask why a model works or fails: curvature, dead units, moments, ...

    --set QUESTION.OPTION=VALUE changes a question, evaluation.KEY the weights or branch.
    For a model of your own, --set data.name=NAME and threat.eps=EPS too.

    Example: advnorm diagnose runs/pgd hessian distances --set hessian.steps=20
    """
    from advnorm.cli.settings import WEIGHTS, evaluation_settings
    from advnorm.cli.targets import (
        OF_RECIPE,
        TargetOptions,
        open_targets,
        say_next,
        split_settings,
    )
    from advnorm.cli.user_models import is_model
    from advnorm.diagnosis import QUESTIONS
    from advnorm.progress import show_progress
    from advnorm.runs import diagnose_run, parse_questions

    if not names and not all_:
        raise ValueError("name a question of 'advnorm list questions', or write --all")
    of_model = (*OF_RECIPE, "threat.") if is_model(run) else OF_RECIPE
    of_recipe, changes = split_settings(set_, of_model)
    settings, changes = split_settings(changes, ("evaluation.",))
    evaluation_settings(settings, WEIGHTS)
    questions = parse_questions(list(QUESTIONS) if all_ else names or [], changes)
    options = TargetOptions(of_recipe, out, data, device)
    with (
        open_targets([run], settings, options) as targets,
        show_progress() as progress,
    ):
        for diagnosis in diagnose_run(
            *targets[0][:2],
            questions,
            samples=samples,
            skip=all_,
            root=data,
            device=device,
            progress=progress,
        ):
            echo(str(diagnosis))
    say_next(targets, options)
