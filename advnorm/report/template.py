"""The environment of the page templates."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path, PurePath
from shlex import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from advnorm.text import printable

_FOLDER = Path(__file__).parent


def environment() -> Environment:
    """Return the environment: text is escaped, and an undefined name is an error.

    Control characters in the text of records and file names are written out, so that a page
    is valid UTF-8 and nothing in it reverses the text direction.
    """
    templates = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(digest=_digest, shell=lambda path: quote(str(path)))
    templates.globals["css"] = Markup((_FOLDER / "page.css").read_text())
    return templates


def _clean(value: object) -> object:
    """Return a value without control characters; markup of the page itself is kept."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return printable(str(value)) if isinstance(value, PurePath) else value


def _digest(script: str) -> str:
    """Return the base64 SHA-256 by which the page's policy allows its script."""
    return b64encode(sha256(script.encode()).digest()).decode()
