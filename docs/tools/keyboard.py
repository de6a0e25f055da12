"""Wide tables, code and equations scroll by keyboard too, in a region with a name."""

import re
from itertools import count
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_HEADING = 'role="heading"'
_LEVELLED = 'role="heading" aria-level="2"'
"""A heading of the navigation needs a level, which the theme does not give."""
_SIGNATURE = re.compile(r'(<span class="sig-paren">.</span>\s*)<dl>')
"""A signature over several lines is a list of definitions without terms."""
_TABLE = re.compile(r'<div class="(table-wrapper\b[^"]*)">')


def scrollable(body: str) -> str:
    """Let the keyboard reach what scrolls.

    >>> scrollable('<div class="table-wrapper docutils"><pre>')
    '<div class="table-wrapper docutils" role="region" tabindex="0" aria-label="Table 1"><pre tabindex="0">'
    """  # noqa: E501
    numbers = count(1)

    def region(match: re.Match[str]) -> str:
        name = f"Table {next(numbers)}"
        return f'<div class="{match[1]}" role="region" tabindex="0" aria-label="{name}">'

    body = _SIGNATURE.sub(r'\1<dl role="presentation">', body)
    return _TABLE.sub(region, body).replace("<pre>", '<pre tabindex="0">')


def change(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document
) -> None:
    """Change the body of a page before it is written."""
    if "body" in context:
        context["body"] = scrollable(context["body"])
    tree_of_pages = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree_of_pages.replace(_HEADING, _LEVELLED)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to pages that are written."""
    app.connect("html-page-context", change, priority=900)  # behind the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
