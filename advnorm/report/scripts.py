"""The scripts of a page: its files joined into one, so that one hash allows them."""

from pathlib import Path

FOLDER = Path(__file__).parent
ALL = (
    *("dom", "packing", "verdicts", "selection", "table", "highlight", "chart", "zoom"),
    *("samples", "page"),
)
"""The files without their ending, in the order in which they need each other."""


def joined_scripts() -> str:
    """Return all scripts as one, which leaves no name behind."""
    files = [(FOLDER / f"{name}.js").read_text() for name in ALL]
    return '(() => {\n"use strict";\n' + "\n".join(files) + "})();\n"
