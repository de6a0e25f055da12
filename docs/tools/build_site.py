"""Build the documentation site: ``python docs/tools/build_site.py``, or ``make docs``.

The source of the site is put together in ``docs/_build/source``: the pages of the
repository, the tutorials as they ran, and the pages that are generated from the code.
Sphinx turns it into ``docs/_build/html``. A warning is an error.

Beside a folder that was built without any message lies ``NAME.digest``, of all files that
the site may be made of: :func:`is_current` tells whether it has to be built again.
"""

import argparse
import io
import re
import sys
from contextlib import redirect_stderr
from hashlib import sha256
from pathlib import Path

import api_pages
import cli_pages
import name_pages
import recipe_page
import record_pages
from repository_pages import (
    DOCS,
    ROOT,
    adjusted,
    code_page,
    copy,
    page_of,
    write,
    write_kept_pages,
)
from sphinx.cmd.build import main as sphinx

BUILD = DOCS / "_build"
TUTORIALS = DOCS / "tutorials"
"""The scripts; ``run_tutorials.py`` leaves their pages and figures in ``generated``."""

SUFFIXES = {
    "",
    ".md",
    ".py",
    ".svg",
    ".png",
    ".css",
    ".js",
    ".html",
    ".json",
    ".yaml",
    ".toml",
}
SUFFIXES |= {".cff", ".txt"}
"""Of files that are pages, that pages show, or that pages are made of."""
MEASUREMENTS = ":::{toctree}\n:hidden:\n:glob:\n\n*\n../benchmarks\n:::\n"


def generated() -> dict[str, str]:
    """Return the pages that are made of the code, by their path on the site."""
    pages = {f"reference/api/{name}.rst": text for name, text in api_pages.pages().items()}
    pages |= {f"reference/cli/{name}.md": text for name, text in cli_pages.pages().items()}
    pages["reference/recipe.md"] = recipe_page.page()
    pages["reference/names.md"] = name_pages.page()
    files = record_pages.files()
    return pages | {f"reference/{name}": text for name, text in files.items()}


def assemble(source: Path) -> None:
    """Write the source of the site, and remove what is no longer part of it."""
    written = write_kept_pages(source)
    written |= {write(source / name, text) for name, text in generated().items()}
    written |= tutorials(source / "tutorials")
    for path in source.rglob("*"):
        if path.is_file() and path not in written:
            path.unlink()
    for shelf in ("tutorials", "explanation"):
        if len([*(source / shelf).glob("*.md")]) == 1:  # Sphinx warns of an empty list
            path = source / shelf / "index.md"
            write(path, re.sub(r":::\{toctree\}.*?:::\n", "", path.read_text(), flags=re.S))
    results = source / "results" / "index.md"
    write(results, f"{results.read_text()}\n{MEASUREMENTS}")


def tutorials(folder: Path) -> set[Path]:
    """Write the tutorials as they ran, scripts and figures beside them.

    One that has not run is shown as a script.
    """
    written, linked = set(), set[Path]()
    for script in sorted(TUTORIALS.glob("*.py")):
        page = TUTORIALS / "generated" / f"{script.stem}.md"
        text = page.read_text() if page.is_file() else code_page(script)
        text = adjusted(script, text, page_of(script), linked)
        text = re.sub(r"<\.\./([\w-]+\.py)>", r"<\1>", text)
        written |= {write(folder / page.name, text), copy(script, folder / script.name)}
    for path in TUTORIALS.glob("generated/*.svg"):
        written.add(copy(path, folder / path.name))
    return written


def digest() -> str:
    """Return a digest of the files of the repository of which the site may be made."""
    files = sorted(
        path
        for path in ROOT.rglob("*")
        if path.suffix in SUFFIXES
        and path.is_file()
        and not any(_is_other(part) for part in path.relative_to(ROOT).parts)
    )
    each = (
        f"{path.relative_to(ROOT)} {sha256(path.read_bytes()).hexdigest()}"
        for path in files
    )
    return sha256("\n".join(each).encode()).hexdigest()


def _is_other(part: str) -> bool:
    return part in ("_build", "node_modules") or (
        part.startswith(".") and part != ".github"
    )


def _record(out: Path) -> Path:
    return out.with_name(f"{out.name}.digest")


def is_current(out: Path) -> bool:
    """Tell whether a folder was built without a message from the files as they are."""
    record = _record(out)
    return out.is_dir() and record.is_file() and record.read_text() == digest()


def build(out: Path, source: Path) -> int:
    """Build the site, and return the exit code of Sphinx."""
    _record(out).unlink(missing_ok=True)
    before, messages = digest(), io.StringIO()
    assemble(source)
    options = ["-b", "html", "-q", "-n", "-W", "--keep-going", "-c", str(DOCS)]
    trees = ["-d", str(source.parent / "doctrees")]
    with redirect_stderr(messages):
        code = sphinx([*options, *trees, str(source), str(out)])
    sys.stderr.write(messages.getvalue())
    if not code and not messages.getvalue().strip():
        _record(out).write_text(before)
    return code


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILD / "html")
    out = parser.parse_args().out.resolve()
    sys.exit(build(out, out.parent / "source"))


if __name__ == "__main__":
    main()
