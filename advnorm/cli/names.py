"""``advnorm list``: the names that recipes and commands know."""

from typing import Annotated

import typer

from advnorm.cli.output import echo


def list_names(
    kind: Annotated[
        str, typer.Argument(help="recipes, data, models, norms, ...; papers; or all.")
    ] = "all",
) -> None:
    """List the names of recipes, data sets, models, norms, objectives, attacks, ...

    Example: advnorm list attacks
    """
    from advnorm.listing import listing

    echo(listing(kind))
