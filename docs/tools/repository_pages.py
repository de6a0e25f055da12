"""The pages that are kept as Markdown, each at its place on the site, links adjusted."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOT_PAGES = ("_build", "_static", "tools")
PROJECT = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
}
"""Files beside the folder ``docs``, and their pages; the site has its own first page."""
CODE = {".py": "python", ".cff": "yaml", ".toml": "toml", "": "text", ".txt": "text"}
"""Linked files that are shown as pages, and the language of each."""

_SHELF = re.compile(r"^((?:.* <)?(?:[\w-]+/)*)README(>?)$", re.MULTILINE)
_LINK = re.compile(r"(\]\(|src=\"|srcset=\"|href=\")([^)\s\"]+)")
_FENCE = re.compile(r"^(```|:::)(\S*).*?^\1$", re.MULTILINE | re.DOTALL)


def kept_pages() -> Iterator[tuple[Path, str]]:
    """Yield the Markdown files of the repository, each with the path of its page."""
    for path in sorted(DOCS.rglob("*.md")):
        within = path.relative_to(DOCS)
        if _is_kept(within):
            yield path, page_of(path)
    for name, page in PROJECT.items():
        if name != "README.md":
            yield ROOT / name, page


def _is_kept(within: Path) -> bool:
    return within.parts[0] not in NOT_PAGES and "generated" not in within.parts


def page_of(path: Path) -> str:
    """Return the page of a file of the repository.

    >>> page_of(DOCS / "results" / "README.md"), page_of(ROOT / "LICENSE")
    ('results/index.md', 'files/LICENSE.md')
    """
    inside = path.relative_to(ROOT)
    if str(inside) in PROJECT:
        return PROJECT[str(inside)]
    if path.is_dir():
        folder = inside.relative_to("docs") if inside.parts[0] == "docs" else inside
        return f"{folder}/index.md"
    if inside.parts[0] == "docs" and path.suffix not in (*CODE, ""):
        page = inside.relative_to("docs")
        return str(page.with_name("index.md") if page.name == "README.md" else page)
    if inside.parts[:2] == ("docs", "tutorials"):
        return str(inside.relative_to("docs").with_suffix(".md"))
    return f"files/{inside}.md"


def write_kept_pages(source: Path) -> set[Path]:
    """Write all kept pages and what they link to below ``source``; return the files."""
    linked = {path for path in DOCS.rglob("*.svg") if _is_kept(path.relative_to(DOCS))}
    written: set[Path] = set()
    for path, page in kept_pages():
        text = adjusted(path, path.read_text(), page, linked)
        written.add(write(source / page, text))
    known, pages = {p for p, _ in kept_pages()}, {page for _, page in kept_pages()}
    folders = {path for path in linked if path.is_dir() and page_of(path) not in pages}
    for folder in sorted(folders):
        written.add(write(source / page_of(folder), _folder_page(folder, linked)))
    for path in sorted(linked - known - folders):
        if path.is_dir():
            continue
        if path.suffix in CODE and "tutorials" not in path.parts:
            written.add(write(source / page_of(path), code_page(path)))
        elif path.is_file() and path.suffix not in (*CODE, ".md"):
            written.add(copy(path, source / page_of(path)))
    return written


def adjusted(path: Path, text: str, page: str, linked: set[Path]) -> str:
    """Return a page's text with links to where files are on the site."""

    def link(match: re.Match[str]) -> str:
        before, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:", "data:")):
            return match[0]
        name, mark, anchor = target.partition("#")
        file = (path.parent / name).resolve()
        if not file.is_relative_to(ROOT):
            return match[0]
        linked.add(file)
        place = os.path.relpath(page_of(file), os.path.dirname(page) or ".")
        kept = "" if file.name == "README.md" and file.parent == ROOT else mark + anchor
        return f"{before}{place}{kept}"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):  # code is not prose: its brackets are no links
        inside = _SHELF.sub(r"\1index\2", fence[0]) if fence[1] == ":::" else fence[0]
        parts += [_LINK.sub(link, text[end : fence.start()]), inside]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def write(path: Path, text: str) -> Path:
    """Write a file unless it is as it should be, so that only changed pages are built."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path


def copy(path: Path, to: Path) -> Path:
    """Copy a file that changed."""
    to.parent.mkdir(parents=True, exist_ok=True)
    if not to.is_file() or to.read_bytes() != path.read_bytes():
        shutil.copyfile(path, to)
    return to


def _folder_page(folder: Path, linked: set[Path]) -> str:
    """List the files of a folder that a page links to."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    linked.update(files)
    lines = "\n".join(f"- [{path.name}]({path.name})" for path in files)
    return f"---\norphan: true\n---\n\n# {folder.relative_to(ROOT)}\n\n{lines}\n"


def code_page(path: Path) -> str:
    """Show a file of the repository as a page."""
    orphan = "" if path.parent.name == "tutorials" else "---\norphan: true\n---\n\n"
    return (
        f"{orphan}# {path.relative_to(ROOT)}\n\n"
        f"````{CODE[path.suffix]}\n{path.read_text().rstrip()}\n````\n"
    )
