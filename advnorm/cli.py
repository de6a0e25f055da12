"""The command line: parse, call one function, print."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="advnorm",
    help="How should a network be normalized when it must resist an adversary?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Fetch data sets and say where they are.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto.")]
Root = Annotated[
    Path | None, typer.Option("--data", help="Folder of data sets [ADVNORM_DATA].")
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
) -> None:
    """Train and attack four small models on digits, and write a report."""
    from advnorm import demo as showcase
    from advnorm.progress import shown

    with shown() as progress:
        report = showcase.run(out, progress=progress)
    typer.echo(showcase.closing(report))


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A name of 'advnorm list', or a YAML file.")
    ],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run.")] = False,
) -> None:
    """Train a recipe into a run folder."""
    from advnorm.progress import shown
    from advnorm.recipe import override
    from advnorm.recipes import find
    from advnorm.train import train as run_training

    chosen = override(find(recipe), set_ or [])
    with shown() as progress:
        run_training(
            chosen, out, root=data, device=device, resume=resume, progress=progress
        )
    _say(f"trained: {out}\nnext: advnorm evaluate {out}")


@app.command()
def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
    baseline: Annotated[
        Path | None, typer.Option(help="The run that corruption errors are divided by.")
    ] = None,
) -> None:
    """Attack the models of runs; --set changes their 'evaluation' settings."""
    from advnorm.progress import shown
    from advnorm.recipe import from_yaml, override
    from advnorm.records import Run
    from advnorm.report import corruption_errors, terminal
    from advnorm.train import assess

    changes = [f"evaluation.{change.removeprefix('evaluation.')}" for change in set_ or []]
    found = [Run.open(path) for path in runs]
    reference = Run.open(baseline) if baseline else None
    with shown() as progress:
        for run in found:
            recipe = override(from_yaml(run.recipe_text()), changes)
            progress.line(f"{run.path}:")
            assess(run, recipe, root=data, device=device, progress=progress)
    _say(terminal(found))
    for run in found:
        for line in corruption_errors(run, reference):
            _say(f"{run.path}: {line}")
    _say(f"next: advnorm report {' '.join(map(str, runs))} --out report.html")


@app.command()
def certify(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    method: Annotated[str, typer.Option(help="ibp, crown-ibp or crown.")] = "crown",
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Verify the models of runs; --set as in 'evaluate', such as eps=[0.3]."""
    from advnorm.certify import METHODS
    from advnorm.registry import unknown

    if method not in METHODS:
        raise unknown("certificate", method, list(METHODS))
    evaluate(runs, [*(set_ or []), f"attacks=[{method}]"], device, data)


@app.command()
def transfer(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders.")],
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write.")] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Attack each run, and judge all of them on it; --set as in 'evaluate' [pgd-40]."""
    import json

    from advnorm.files import write_atomically
    from advnorm.progress import shown
    from advnorm.recipe import from_yaml, override
    from advnorm.records import Run
    from advnorm.train import transfer_runs

    given = [f"evaluation.{change.removeprefix('evaluation.')}" for change in set_ or []]
    changes = ["evaluation.attacks=[pgd-40]", "evaluation.eps=[]", *given]
    found = [Run.open(path) for path in runs]
    recipes = [override(from_yaml(run.recipe_text()), changes) for run in found]
    with shown() as progress:
        made = transfer_runs(found, recipes, root=data, device=device, progress=progress)
    _say("\n\n".join(map(str, made)))
    if out is not None and _leads():
        records = [matrix.model_dump(mode="json") for matrix in made]
        write_atomically(out, json.dumps(records, indent=1).encode())


@app.command()
def perturb(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Perturb batch-norm statistics; --set changes 'perturbation', or evaluation.KEY."""
    from advnorm.progress import shown
    from advnorm.recipe import from_yaml, override
    from advnorm.records import Run
    from advnorm.report import terminal
    from advnorm.train import perturb as run_perturbation

    known = ("evaluation.", "perturbation.")
    changes = [c if c.startswith(known) else f"perturbation.{c}" for c in set_ or []]
    found = [Run.open(path) for path in runs]
    with shown() as progress:
        for run in found:
            recipe = override(from_yaml(run.recipe_text()), changes)
            progress.line(f"{run.path}:")
            run_perturbation(run, recipe, root=data, device=device, progress=progress)
    _say(terminal(found))


@app.command()
def audit(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    suite: Annotated[
        str, typer.Option(help="Strong attacks, by commas; 'standard' is AutoAttack.")
    ] = "apgd_ce-50,apgd_t-20,square-500",
    set_: Set = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Ask whether the robustness of runs is real, and flag their results if not."""
    from advnorm.progress import shown
    from advnorm.recipe import from_yaml, override
    from advnorm.records import Run
    from advnorm.train import audit_run

    changes = [f"evaluation.{change.removeprefix('evaluation.')}" for change in set_ or []]
    found = [Run.open(path) for path in runs]
    names = tuple(name.strip() for name in suite.split(","))
    with shown() as progress:
        for run in found:
            recipe = override(from_yaml(run.recipe_text()), changes)
            audits = audit_run(
                run, recipe, suite=names, root=data, device=device, progress=progress
            )
            typer.echo("\n".join([f"{run.path}:", *map(str, audits)]))


@app.command()
def diagnose(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
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
    """Ask why a run's model works or fails; --set QUESTION.OPTION=VALUE, evaluation.KEY."""
    from advnorm.diagnose import QUESTIONS
    from advnorm.progress import shown
    from advnorm.recipe import from_yaml, override
    from advnorm.records import Run
    from advnorm.train import diagnose_run, questions

    if not names and not all_:
        raise ValueError("name a question of 'advnorm list questions', or write --all")
    ours = [change for change in set_ or [] if change.startswith("evaluation.")]
    options = [change for change in set_ or [] if not change.startswith("evaluation.")]
    asked = questions(list(QUESTIONS) if all_ else names or [], options)
    found = Run.open(run)
    with shown() as progress:
        for diagnosis in diagnose_run(
            found,
            override(from_yaml(found.recipe_text()), ours),
            asked,
            samples=samples,
            skip=all_,
            root=data,
            device=device,
            progress=progress,
        ):
            typer.echo(str(diagnosis))
    typer.echo(f"next: advnorm report {run} --out report.html")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one self-contained page that compares runs."""
    from advnorm.records import Run
    from advnorm.report import write

    typer.echo(f"wrote {write([Run.open(path) for path in runs], out)}")


@app.command()
def plan(
    recipe: Annotated[
        str, typer.Argument(help="A name of 'advnorm list', or a YAML file.")
    ],
    set_: Set = None,
    device: Annotated[str, typer.Option(help="v100, a100, ..., or all.")] = "all",
) -> None:
    """Say what a recipe costs: operations, memory, device-hours; nothing is run."""
    from advnorm.recipe import override
    from advnorm.recipes import find
    from advnorm.train.devices import chosen
    from advnorm.train.plan import table

    devices = chosen(device)
    typer.echo(table(override(find(recipe), set_ or []), devices))


@app.command()
def reproduce(
    artefacts: Annotated[
        list[str], typer.Argument(help="Such as galloway2019/table1, or a whole paper.")
    ],
    scale: Annotated[
        str, typer.Option(help="smoke (a minute), reduced (small machine) or full.")
    ] = "smoke",
    seeds: Annotated[int, typer.Option(help="Runs of each row.")] = 1,
    out: Annotated[Path, typer.Option(help="Where runs and records go.")] = Path(
        "reproduced"
    ),
    on: Annotated[
        str, typer.Option(help="How many processes train at once, or ray for a cluster.")
    ] = "1",
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Regenerate tables and figures of the papers; goes on where it stopped."""
    from advnorm.papers import Place, named, reproduce, scale_of, workers
    from advnorm.progress import shown
    from advnorm.report import reproduction_text

    size, place = scale_of(scale), Place(out, data, device, workers(on))
    failed = False
    with shown() as progress:
        for name in named(artefacts):
            record = reproduce(name, place, scale=size, seeds=seeds, progress=progress)
            failed |= bool(record.failed)
            _say(reproduction_text(record))
    _say(f"records: {out}")
    if failed:
        raise typer.Exit(1)


@app.command(name="list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="recipes, models, norms, ...; or all.")
    ] = "all",
) -> None:
    """List what can be named: recipes, data, models, norms, objectives, attacks, ..."""
    from advnorm.listing import listing

    typer.echo(listing(kind))


@data_app.command(name="get")
def get(
    name: Annotated[str, typer.Argument(help="A data set of 'advnorm list data'.")],
    data: Root = None,
) -> None:
    """Download a data set, once, with size and digest checked."""
    from advnorm.data.download import get as download
    from advnorm.progress import shown

    with shown() as progress:
        paths = download(
            name,
            root=data,
            report=lambda file, done, total: progress.update(done, max(total, done), file),
        )
    for path in paths:
        typer.echo(path)


def _say(text: str) -> None:
    """Print a result, once: of the processes that torchrun starts, the first one does."""
    if _leads():
        typer.echo(text)


def _leads() -> bool:
    return os.environ.get("RANK", "0") == "0"


def main() -> None:
    """Run the command line; a user's mistake is one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, NotImplementedError, FloatingPointError) as error:
        _fail(error)
    except Exception as error:
        if type(error).__name__ != "StoppedError":
            raise
        _stopped(error)


def _fail(error: Exception) -> None:
    """Print one message; an OSError's own text already names the path."""
    if type(error).__name__ == "FollowedError":  # the first rank says it
        sys.exit(2)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.filename and str(error.filename) not in text:
        text = f"{error.filename}: {text}"
    typer.echo(f"advnorm: {text}", err=True)
    sys.exit(2)


def _stopped(error: Exception) -> None:
    from advnorm.train import StoppedError

    assert isinstance(error, StoppedError)
    typer.echo(f"advnorm: {error}; everything done so far is saved.", err=True)
    if error.resume:
        typer.echo(f"go on with: {error.resume}", err=True)
    sys.exit(128 + error.signum)


if __name__ == "__main__":
    main()
