"""``advnorm export``: a run's network, or its numbers, for use without advnorm."""

from pathlib import Path
from typing import Annotated

import typer

from advnorm.cli.options import DataFolder, Set
from advnorm.cli.output import echo


def export(
    run: Annotated[str, typer.Argument(help="A run folder, or a model FILE.py:NAME.")],
    to: Annotated[str, typer.Option(help="torch, onnx, torchscript, robustbench or card.")],
    out: Annotated[Path, typer.Option(help="The file to write; NAME.py for torch.")],
    set_: Set = None,
    data: DataFolder = None,
) -> None:
    """Write the network of a run, or what was measured of it, for use without advnorm.

    --set branch=clean chooses a branch, --set weights=last the last weights; for a model
    of your own, --set data.name=NAME the data that it is tested with.

    Example: advnorm export runs/pgd --to onnx --out pgd.onnx
    """
    from advnorm.cli.settings import WEIGHTS, evaluation_settings
    from advnorm.cli.targets import TargetOptions, open_targets, split_settings
    from advnorm.runs.export import ExportRequest, export_request

    of_recipe, changes = split_settings(set_)
    settings = evaluation_settings(changes, WEIGHTS)
    named = any(change.startswith("evaluation.branch=") for change in settings)
    options = TargetOptions(of_recipe, None, data, "cpu")
    with open_targets([run], settings, options) as ((opened, recipe, _),):
        chosen = recipe.evaluation
        request = ExportRequest(
            opened, chosen.branch if named else None, chosen.weights, None, data, recipe
        )
        echo(export_request(request, to=to, out=out))
