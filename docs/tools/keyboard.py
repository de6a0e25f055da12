"""Wide tables, code and equations scroll by keyboard too, in a region with a name."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

TABLE = '<div class="table-wrapper docutils container">'
REGION = (
    '<div class="table-wrapper docutils container" role="region" tabindex="0" '
    'aria-label="Table">'
)


def focusable(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document
) -> None:
    """Let the keyboard reach what scrolls."""
    if "body" in context:
        body = context["body"].replace(TABLE, REGION)
        context["body"] = body.replace("<pre>", '<pre tabindex="0">')


def setup(app: Sphinx) -> dict[str, Any]:
    """Change pages before they are written."""
    app.connect("html-page-context", focusable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
