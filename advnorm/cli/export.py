"""``advnorm export``: a run's network, or its numbers, for use without advnorm."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Set
from advnorm.cli.output import echo


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    to: Annotated[str, typer.Option(help="torch, onnx, torchscript, robustbench or card.")],
    out: Annotated[Path, typer.Option(help="The file to write; NAME.py for torch.")],
    set_: Set = None,
    data: DataFolder = None,
) -> None:
    """Write the network of a run, or what was measured of it, for use without advnorm.

    --set branch=clean chooses a branch, --set weights=last the last weights.

    Example: advnorm export runs/pgd --to onnx --out pgd.onnx
    """
    from typing import cast

    from advnorm.cli.settings import WEIGHTS, changed_recipe, evaluation_settings
    from advnorm.norms import Domain
    from advnorm.records import Run
    from advnorm.runs import export_model
    from advnorm.runs.export import FormatName

    opened, changes = Run.open(run), evaluation_settings(set_, WEIGHTS)
    chosen = changed_recipe(opened, changes).evaluation
    named = any(change.startswith("evaluation.branch=") for change in changes)
    files = export_model(
        opened,
        to=cast(FormatName, to),  # an unknown name is refused
        out=out,
        branch=cast(Domain, chosen.branch) if named else None,
        weights=chosen.weights,
        root=data,
    )
    echo(files)
