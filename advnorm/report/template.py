"""The templates of the pages, and what they all are given."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path, PurePath
from shlex import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from advnorm.text import printable

_FOLDER = Path(__file__).parent


def environment() -> Environment:
    """Return where templates are found; text is escaped, a name left out is an error.

    Text of records and names of files are cleaned as for a terminal: a page is UTF-8, and
    no sign in it turns the direction of what follows.
    """
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(digest=_digest, shell=lambda path: quote(str(path)))
    made.globals["css"] = Markup((_FOLDER / "page.css").read_text())
    return made


def _clean(value: object) -> object:
    """Return what is shown of a value; what the page itself made stays as it is."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return printable(str(value)) if isinstance(value, PurePath) else value


def _digest(script: str) -> str:
    """Return the base64 SHA-256 by which the page's policy knows its one script."""
    return b64encode(sha256(script.encode()).digest()).decode()
