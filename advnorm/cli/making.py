"""Commands that make runs, and say what they cost."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.base import Device, Root, Set, app, echo, end, say


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/demo"),
) -> None:
    """Train and attack four small models on digits, and write a report."""
    from advnorm import demo as showcase
    from advnorm.progress import shown

    with shown() as progress, _resumable():
        report = showcase.run(out, progress=progress)
    echo(showcase.closing(report))


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
    from advnorm.ranks import PeerLostError
    from advnorm.recipe import override
    from advnorm.recipes import find
    from advnorm.training import StoppedError
    from advnorm.training import train as run_training

    chosen = override(find(recipe), set_ or [])
    given = ["--data", str(data)] if data else []
    given += ["--device", device] if device != "auto" else []
    with shown() as progress:
        try:
            run_training(
                chosen, out, root=data, device=device, resume=resume, progress=progress
            )
        except (StoppedError, PeerLostError) as stopped:
            if stopped.resume:
                stopped.resume = shlex.join([*shlex.split(stopped.resume), *given])
            raise
    following = shlex.join(["advnorm", "evaluate", str(out), *given])
    say(f"trained: {out}\nnext: {following}")


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
    from advnorm.runs.devices import named_devices
    from advnorm.runs.plan import table

    devices = named_devices(device)
    echo(table(override(find(recipe), set_ or []), devices))


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
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="row=NAME", help="Only this row; repeatable."),
    ] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Regenerate tables and figures of the papers; goes on where it stopped."""
    from advnorm.papers import (
        Place,
        named,
        refuse,
        reproduce_each,
        rows_of,
        scale_of,
        workers,
    )
    from advnorm.progress import shown
    from advnorm.report import reproduction_text, write_paper_pages

    size, place = scale_of(scale), Place(out, data, device, workers(on))
    names, rows = named(artefacts), rows_of(set_ or [])
    problems: list[str] = []
    refuse(names, place, scale=size, seeds=seeds, rows=rows)
    with shown() as progress, _resumable():
        for made in reproduce_each(
            names, place, scale=size, seeds=seeds, rows=rows, progress=progress
        ):
            problems += made.problems
            if made.record is not None:
                say(reproduction_text(made.record))
    pages = write_paper_pages(out)
    for page in pages.written:
        say(f"wrote {page}")
    told = "\n".join(problems)
    end([*problems, *(one for one in pages.damaged if one not in told)])


@contextmanager
def _resumable() -> Iterator[None]:
    """While entered, a stop says that the same command goes on."""
    from advnorm.training import StoppedError

    try:
        yield
    except (StoppedError, KeyboardInterrupt) as error:
        stopped = error if isinstance(error, StoppedError) else StoppedError(signal.SIGINT)
        stopped.resume = shlex.join(["advnorm", *sys.argv[1:]])
        raise stopped from None
