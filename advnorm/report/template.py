"""The environment of the page templates."""

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path, PurePath
from shlex import quote
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from advnorm.report.cost import duration
from advnorm.report.radius_chart import interval_text
from advnorm.report.rows import eps_label
from advnorm.report.scripts import joined_scripts
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
    templates.filters.update(
        digest=_digest,
        zip=lambda first, second: zip(first, second, strict=True),
        shell=lambda path: quote(str(path)),
        script_data=script_data,
        duration=duration,
        eps=eps_label,
        interval=interval_text,
    )
    templates.globals["css"] = Markup((_FOLDER / "page.css").read_text())
    templates.globals["script"] = Markup(joined_scripts())
    return templates


def _clean(value: object) -> object:
    """Return a value without control characters; markup of the page itself is kept."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return printable(str(value)) if isinstance(value, PurePath) else value


def _digest(script: str) -> str:
    """Return the base64 SHA-256 by which the page's policy allows its script."""
    return b64encode(sha256(script.encode()).digest()).decode()


def script_data(value: Any) -> Markup:
    r"""Return JSON for a data block of the page: nothing in it can end the block.

    >>> print(script_data({"a": "</script>"}))
    {"a":"\u003c/script>"}
    """
    text = json.dumps(_printable(value), separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))


def _printable(value: Any) -> Any:
    """Return plain values with the control characters of their texts written out."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(inner) for key, inner in value.items()}
    return [_printable(v) for v in value] if isinstance(value, list | tuple) else value
