"""Read the pages: fenced code blocks, inline code, links and headings."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHELVES = ["how-to", "reference", "explanation"]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *(page for shelf in SHELVES for page in sorted((DOCS / shelf).glob("*.md"))),
]
NOT_OURS = {"_build", "generated", "node_modules", "build", "dist"}
PROSE = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part in NOT_OURS or (part.startswith(".") and part != ".github")
        for part in path.relative_to(ROOT).parts
    )
)
"""Every Markdown file of the repository."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(r"\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- parsed, not run: (.+?) -->\s*\Z")


class Block(NamedTuple):
    """A fenced code block of a page."""

    language: str
    text: str
    line: int
    only_parsed: str
    """Why the commands of the block are parsed and not run; empty if they are run."""
    output: str
    """What the page says that the block prints: the text block right behind it."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[Block]:
    """Return the code blocks of a language, in order."""
    text = page.read_text()
    return [
        Block(
            match[1],
            match[2],
            text.count("\n", 0, match.start()) + 1,
            mark[1] if (mark := _MARK.search(text[: match.start()])) else "",
            out[1] if (out := _OUTPUT.match(text, match.end() + 1)) else "",
        )
        for match in _FENCE.finditer(text)
        if match[1] == language
    ]


def without_blocks(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def commands(text: str) -> list[list[str]]:
    """Split shell lines into words; comments go, continued lines are joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def inline_code(page: Path) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", without_blocks(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    """Return where the links of a page lead, those of the web left out."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
    return [target for target in targets if "://" not in target]
