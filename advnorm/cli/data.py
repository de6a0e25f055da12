"""``advnorm data``: download data sets."""

from typing import Annotated

import typer

from advnorm.cli.options import DataFolder
from advnorm.cli.output import echo


def get(
    name: Annotated[str, typer.Argument(help="A data set of 'advnorm list data'.")],
    data: DataFolder = None,
) -> None:
    """Download a data set, and check its size and digest.

    Example: advnorm data get mnist --data ~/data
    """
    from advnorm.data.download import download
    from advnorm.progress import show_progress

    with show_progress() as progress:
        paths = download(
            name,
            root=data,
            report=lambda file, done, total: progress.update(done, max(total, done), file),
        )
    for path in paths:
        echo(path)
