"""Which norm, on all of MNIST? Every norm, trained with PGD and with mixed_kl; resumable.

    ADVNORM_DATA=FOLDER python benchmarks/norm_study.py --out studies/mnist [--on 2]
    python benchmarks/norm_study.py --page [--check]

The first command runs the studies behind docs/results/norms-mnist.md, and keeps their
records in docs/results/norms-mnist/; runs that these have already are not made again. The
second writes the tables of that page from the kept records; ``--check`` writes nothing and
exits with 1 where the page says otherwise.

Two questions share their runs, so that each pays for its own comparisons alone (Holm):
all norms under both objectives, and the two by two of statistics and parameters.
"""

import argparse
import re
import sys
from pathlib import Path

from advnorm.progress import Plain
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.records import Study, read_record
from advnorm.report.study_table import table_of
from advnorm.studies import parse_over, run_study
from advnorm.studies.grid import Workspace, parse_workers

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "norms-mnist.md"
KEPT = PAGE.with_suffix("")
SETTINGS = ("objective.likelihood=0.01",)
MIXED = ("objective.name=mixed_kl", *SETTINGS)
STUDIES = {
    "all": (
        SETTINGS,
        (
            "norm.name=batch,group,instance,layer,none,mixture,affine,dual,borrowed",
            "objective.name=pgd,mixed_kl",
        ),
    ),
    "statistics-or-parameters": (MIXED, ("norm.name=batch,affine,mixture,dual",)),
}
"""Settings of the recipe mnist.study, and what is compared."""


def main() -> None:
    """Run the studies, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("studies/mnist"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--on", default="1", help="number of processes, or ray")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--page", action="store_true", help="write the page's tables")
    parser.add_argument("--check", action="store_true", help="only compare them")
    options = parser.parse_args()
    if options.page or options.check:
        sys.exit(write_page(check=options.check))
    workspace = Workspace(options.out, options.data, "auto", parse_workers(options.on))
    for name, (settings, over) in STUDIES.items():
        recipe = override(find("mnist.study"), list(settings))
        record = KEPT / f"{name}.json"
        study = run_study(
            recipe,
            parse_over(over),
            workspace,
            seeds=options.seeds,
            earlier=read_record(record, Study) if record.exists() else None,
            progress=Plain(),
        )
        KEPT.mkdir(exist_ok=True)
        record.write_text(study.model_dump_json(indent=1) + "\n")


def write_page(*, check: bool) -> int:
    """Write the tables into the page; return 1 where ``check`` sees others."""
    before = text = PAGE.read_text()
    for name in STUDIES:
        block = markdown(read_record(KEPT / f"{name}.json", Study))
        begin, end = f"<!-- study: {name} -->", f"<!-- end of {name} -->"
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        text, count = re.subn(
            pattern, lambda _, b=f"{begin}\n{block}\n{end}": b, text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{PAGE} has no place for {name!r}")
    if not check:
        PAGE.write_text(text)
    return int(check and text != before)


def markdown(study: Study) -> str:
    """Return the answer, the table and the decided pairs of a study."""
    head, rows = table_of(study)
    shown = [i for i, name in enumerate(head) if name != "training minutes"]  # shared cores
    table = [[cells[i] for i in shown] for cells in (head, ["---"] * len(head), *rows)]
    lines = [" ".join(study.answer), "", *map(row, table)]
    decided = [pair for pair in study.comparisons if pair.decided]
    lines += [
        "",
        f"Pairs that differ: {len(decided)} of {len(study.comparisons)}.",
        "",
        "| higher | lower | difference | 95% interval | p (Holm) |",
        "|---|---|---|---|---|",
    ]
    pairs = decided if len(study.comparisons) > 10 else study.comparisons
    lines += [
        row(
            [
                pair.first,
                pair.second,
                f"{pair.difference:.1f}",
                f"[{pair.low:.1f}, {pair.high:.1f}]",
                f"{pair.p:.2g}",
            ]
        )
        for pair in pairs
    ]
    return "\n".join(lines)


def row(cells: list[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
