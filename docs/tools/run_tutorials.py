"""Execute the tutorials, and write each as a page of MyST Markdown with its figures.

Command: python docs/tools/run_tutorials.py [NAME ...] [--out FOLDER] [--jobs N]

A tutorial is a script ``docs/tutorials/NAME.py`` in the percent format of jupytext, so that
Jupyter and VS Code open it as it is. Every tutorial runs in a process and a temporary
folder of its own, with warnings as errors. The page has its cells, what each printed, the
value of its last expression, and its figures: one for light pages and one for dark ones.
A cell with a figure begins with ``# alt:`` and a description of the figure.

A page is made anew only if the tutorial, this file, the package, the scale, or the version
of a package that computes or draws has changed.
``ADVNORM_TUTORIALS=small`` runs the same cells on less data.
"""

import argparse
import ast
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")
"""Those that compute, draw, or bring data."""
INK = "#0a0b0c"
"""What figures draw text and axes with."""
VARIANTS = {
    "light": {INK: "#1f2328"},
    "dark": {INK: "#e0e0e0", "#0072b2": "#56b4e9", "#009e73": "#2fc796"},
}
"""The variants of a figure, and the colours that each replaces."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a8a8a")
"""Okabe and Ito's, which color-blind readers can tell apart; visible on white and black."""
STYLE = {
    "figure.figsize": (5.8, 3.7),
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.transparent": True,
    "svg.hashsalt": "advnorm",
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), INK),
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick", "grid", "hatch")},
}
_ALT = re.compile(r"\A# alt: (.+(?:\n# .+)*)\n")
_OTHER = re.compile(r"\]\((\w+)\.py\)")
_UP = "](../"


class Cell(NamedTuple):
    """A cell of a tutorial, and the line at which its text begins."""

    kind: str
    text: str
    line: int


class TutorialError(Exception):
    """A cell failed; the message names its place."""


def cells_of(source: str) -> list[Cell]:
    r"""Split a script in percent format into cells of code or Markdown.

    >>> cells_of("# %% [markdown]\n# # Title\n\n# %%\n1 + 1\n")
    [Cell(kind='markdown', text='# Title', line=2), Cell(kind='code', text='1 + 1', line=5)]
    """
    marks = [*re.finditer(r"^# %%(?: \[(markdown)\])?$\n", source, re.MULTILINE)]
    ends = [mark.start() for mark in marks[1:]] + [len(source)]
    cells = []
    for mark, end in zip(marks, ends, strict=True):
        text = source[mark.end() : end].rstrip()
        if mark[1]:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        line = source.count("\n", 0, mark.end()) + 1
        cells.append(Cell(mark[1] or "code", text, line))
    return cells


def parts_of(cell: Cell, path: Path) -> Iterator[tuple[CodeType, bool]]:
    """Compile a cell; its last expression apart, because its value is shown."""
    tree = ast.parse("\n" * (cell.line - 1) + cell.text, str(path))
    body = tree.body
    last = body[-1] if body and isinstance(body[-1], ast.Expr) else None
    del body[len(body) - (last is not None) :]
    yield compile(tree, str(path), "exec"), False
    if last is not None:
        yield compile(ast.Expression(last.value), str(path), "eval"), True


def with_links(text: str) -> str:
    """Let links lead to the pages of other tutorials, and from the site's root elsewhere.

    >>> with_links("[next](which_norm.py), [norms](../how-to/norms.md)")
    '[next](which_norm.md), [norms](/how-to/norms.md)'
    >>> with_links("[all](../results/README.md)")  # the first page of a folder of the site
    '[all](/results/index.md)'
    """
    rooted = _OTHER.sub(r"](\1.md)", text).replace(_UP, "](/")
    return rooted.replace("/README.md)", "/index.md)")


def execute(cell: Cell, path: Path, namespace: dict[str, object]) -> str:
    """Run a cell; return what it printed, and its value if it has one."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        for code, is_value in parts_of(cell, path):
            value = eval(code, namespace)
            if is_value and value is not None:
                print(repr(value))
    return printed.getvalue().rstrip()


def save_figures(alt: str, stem: Path) -> Iterator[str]:
    """Save the open figures in each variant; yield the Markdown that shows them."""
    from matplotlib import pyplot as plt

    if plt.get_fignums() and not alt:
        raise TutorialError("the cell draws a figure: describe it in a line '# alt: ...'")
    for number in plt.get_fignums():
        drawn = io.StringIO()
        plt.figure(number).savefig(drawn, format="svg", metadata={"Date": None})
        for variant, colours in VARIANTS.items():
            image, content = f"{stem.name}-{number}-{variant}.svg", drawn.getvalue()
            for colour, replacement in colours.items():
                content = content.replace(colour, replacement)
            stem.with_name(image).write_text(content)
            text = f":alt: {alt}\n:class: only-{variant}"
            yield f"```{{image}} {image}\n{text}\n```"
    plt.close("all")


def write_page(path: Path, out: Path, digest: str) -> None:
    """Run all cells of a tutorial, and write its page."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    style: Any = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    plt.rcParams.update(style)
    vars(plt)["show"] = lambda: None
    begun, blocks = time.perf_counter(), [f"% {digest}"]
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = str(path)
    for number, cell in enumerate(cells_of(path.read_text()), start=1):
        if cell.kind == "markdown":
            blocks.append(with_links(cell.text))
            continue
        described = _ALT.match(cell.text)
        alt = " ".join(re.split(r"\n# +", described[1])) if described else ""
        blocks.append(f"```python\n{_ALT.sub('', cell.text)}\n```")
        try:
            output = execute(cell, path, vars(module))
            blocks += [f"```text\n{output}\n```"] if output else []
            blocks += save_figures(alt, out / f"{path.stem}-{number}")
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            place = f"{path}:{cell.line}: cell {number} failed"
            raise TutorialError(f"{place}\n{trace}") from None
    blocks.append(_footer(path, out, time.perf_counter() - begun))
    (out / f"{path.stem}.md").write_text("\n\n".join(blocks) + "\n")


def _footer(path: Path, out: Path, seconds: float) -> str:
    shutil.copyfile(path, out / path.name)
    scale = "on less data than its text speaks of, " if is_small() else ""
    return (
        f"---\n\nThis page is the output of {{download}}`{path.name}`, which Jupyter and "
        f"VS Code open as a notebook. It ran {scale}in {seconds:.0f} s{_versions()}."
    )


def _versions() -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    threads = torch.get_num_threads()
    return f" with torch {torch.__version__} and {threads} thread{'s' * (threads > 1)}"


def is_small() -> bool:
    """Tell whether tutorials run at the small scale."""
    return os.environ.get("ADVNORM_TUTORIALS") == "small"


def digest_of(path: Path) -> str:
    """Return a digest of what decides a page: the scale, our files, and packages.

    Data come with the packages.
    """
    files = [path, Path(__file__), *sorted((ROOT / "advnorm").rglob("*.py"))]
    digest = hashlib.sha256(b"small" if is_small() else b"full")
    for package in PACKAGES:
        digest.update(f"{package} {version(package)}\n".encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def is_current(path: Path, out: Path) -> bool:
    """Tell whether the page of a tutorial is what running it would write, times apart."""
    page = out / f"{path.stem}.md"
    return page.exists() and page.read_text().startswith(f"% {digest_of(path)}\n")


def build(path: Path, out: Path) -> str:
    """Make the page of a tutorial in a new process, unless it is current.

    Returns what went wrong; empty if nothing did.
    """
    page, digest = out / f"{path.stem}.md", digest_of(path)
    if is_current(path, out):
        return ""
    for old in (page, *out.glob(f"{path.stem}-*.svg")):
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        own = {"PYTHONPATH": search, "TMPDIR": folder}
        words = ["-W", "error", __file__, str(path), "--out", str(out), "--digest", digest]
        child = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", **os.environ, **own},
            stderr=subprocess.PIPE,
            text=True,
        )
    return child.stderr if child.returncode else ""


def main(words: Sequence[str] | None = None) -> int:
    """Make the pages; return the exit code."""
    parser = argparse.ArgumentParser(description="Execute the tutorials.")
    parser.add_argument("names", nargs="*", help="names, or paths of scripts; default all")
    parser.add_argument("--out", type=Path, default=TUTORIALS / "generated")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--digest", help=argparse.SUPPRESS)  # of the process of one page
    options = parser.parse_args(words)
    names = options.names or sorted(path.stem for path in TUTORIALS.glob("*.py"))
    paths = [Path(n) if n.endswith(".py") else TUTORIALS / f"{n}.py" for n in names]
    paths, out = [path.resolve() for path in paths], options.out.resolve()
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"no tutorial {', '.join(missing)}")
    out.mkdir(parents=True, exist_ok=True)
    if options.digest:
        try:
            write_page(paths[0], out, options.digest)
        except TutorialError as error:
            sys.exit(str(error))
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        failures = [text for text in pool.map(lambda path: build(path, out), paths) if text]
    print(*failures, sep="\n", end="", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
