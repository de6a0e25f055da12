"""Settings of Sphinx. The pages are put together by ``docs/tools/build_site.py``."""

import sys
from hashlib import sha256
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "tools"))

import advnorm

project = "advnorm"
author = "the authors of advnorm"
copyright = author
version = release = advnorm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "autodoc_style",
    "mathml",
    "references",
    "keyboard",
]
nitpicky = True
root_doc = "index"

myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 72
python_trailing_comma_in_multi_line_signatures = False
python_display_short_literal_types = True
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"advnorm {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = html_domain_indices = False  # layout tables; the search finds names
html_show_search_summary = False  # it would request pages, which file:// forbids
html_last_updated_fmt = None
templates_path = []
# Both have a contrast of at least 7:1 on the background of code.
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
highlight_language = "text"
smartquotes = False  # options of commands keep their two dashes

_tools = sorted((Path(__file__).parent / "tools").glob("*.py"))
tools_digest = sha256(b"".join(path.read_bytes() for path in _tools)).hexdigest()


def setup(app: Sphinx) -> None:
    """Build every page again after a change of the tools."""
    app.add_config_value("tools_digest", "", "env", str)
