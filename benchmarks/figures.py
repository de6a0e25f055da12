"""Draw the figures of docs/results from the records kept there.

    python benchmarks/figures.py [--check]

Each figure is an SVG file in docs/results/figures and holds a digest of what it shows.
``--check`` draws nothing and exits with 1 where a figure is missing, is of other numbers
than the records', or belongs to no drawing.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from result_figures import FIGURES
from result_figures.contents import Drawing, Results
from result_figures.drawing import digest_of, svg

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def main() -> None:
    """Draw what is stale, or name it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    outdated = stale(RESULTS)
    for path, drawing in outdated.items():
        print(f"{path.name}: {'not what the records say' if check else 'drawn'}")
        if not check:
            draw(path, drawing)
    raise SystemExit(bool(check and outdated))


def stale(results: Path) -> dict[Path, Drawing | None]:
    """Return the files that are not current, with what they should show, if anything."""
    wanted = files(results)
    kept = {path: digest_of(path.read_text()) for path in _folder(results).glob("*.svg")}
    return {
        path: wanted.get(path)
        for path in sorted({*wanted, *kept})
        if path not in wanted or kept.get(path) != wanted[path].digest
    }


def files(results: Path) -> dict[Path, Drawing]:
    """Return every figure's files; a figure without its record has none."""
    drawings = filter(None, (_drawing(make, results) for make in FIGURES))
    return {
        _folder(results) / f"{drawing.name}{f'-{variant}' if variant else ''}.svg": drawing
        for drawing in drawings
        for variant in drawing.variants
    }


def _drawing(make: Callable[[Results], Drawing], results: Path) -> Drawing | None:
    """Return a figure's contents, or nothing while what it shows is not measured."""
    try:
        return make(Results(results))
    except FileNotFoundError:
        return None


def draw(path: Path, drawing: Drawing | None) -> None:
    """Write a figure's file; remove one that belongs to no drawing."""
    if drawing is None:
        path.unlink()
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(svg(drawing, path.stem.removeprefix(drawing.name).removeprefix("-")))


def _folder(results: Path) -> Path:
    return results / "figures"


if __name__ == "__main__":
    main()
