"""axe-core on an open page: rules of WCAG 2.0 and 2.1, levels A and AA.

``package.json`` names the version. The file is injected through the DevTools protocol, so
the policy of the page stays as it is.
"""

import json
from functools import cache
from pathlib import Path

from chromium import Page

SCRIPT = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
INSTALL = "npm install --prefix tests/browser --no-package-lock"
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
RUN = """
axe.run(document, {runOnly: {type: "tag", values: %s}, resultTypes: ["violations"]}).then(
  results => results.violations.flatMap(rule => rule.nodes.map(
    node => `${rule.id}: ${node.target.join(" ")}: ${node.html.slice(0, 160)}: ${node.failureSummary}`
  ))
)
"""


@cache
def _source() -> str:
    return SCRIPT.read_text()


def violations(page: Page) -> list[str]:
    """Return what breaks a rule: the rule, the element, and how to mend it."""
    if not page.value("'axe' in window"):
        page.value(f"{_source()};0")
    texts = page.value(RUN % json.dumps(TAGS))
    return [" ".join(text.split()) for text in texts]
