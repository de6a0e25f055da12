"""References to names: to where a name is documented, or to nothing that is missing.

A docstring or a signature may name an object by any of its paths. The reference leads to
the one place where the object is documented. A name that exists but has no place here, of
torch or of our own inner parts, stays text. A name that does not exist is a warning.
"""

import sys
from typing import Any

from api_pages import places
from docstrings import load
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.TextElement | None:
    """Return the reference for a name that Sphinx does not find itself."""
    if node.get("refdomain") != "py":
        return None
    target, inside = node["reftarget"], node.get("py:module") or "advnorm"
    thing = _find(target, inside, node.get("py:class"))
    if thing is None:
        return None
    domain = env.domains["py"]
    assert isinstance(domain, PythonDomain)
    entry = domain.objects.get(places().get(id(thing), ""))
    if entry is None:
        return content
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, content, target
    )


def _find(target: str, inside: str, owner: str | None) -> object | None:
    """Look for a name as Python would, and then in the parts of the package."""
    prefixes = ["", f"{inside}.", f"{inside}.{owner}." if owner else "builtins."]
    for prefix in (*prefixes, "builtins.", "types.", "typing."):
        thing = load(prefix + target)
        if thing is not None:
            return thing
    for name in sorted(sys.modules):
        if name.startswith("advnorm") and hasattr(sys.modules[name], target):
            found: object = getattr(sys.modules[name], target)
            return found
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to names that are not found."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
