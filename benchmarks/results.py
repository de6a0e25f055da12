"""Writes docs/results/README.md, README's summary and what ``advnorm list papers`` knows.

    python benchmarks/results.py [--check]

Everything is read from the records below docs/results. Those that were made with other
claims or published numbers are judged again by those of now, from the numbers they hold.
``--check`` writes nothing and exits with 1 where a file is not what the records say.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from result_pages import updated_page
from result_summary import summary_page

from advnorm import papers
from advnorm.papers import ARTEFACTS, ILLUSTRATIONS, Artefact
from advnorm.papers.artefact import captions
from advnorm.papers.claims import deciding
from advnorm.papers.cost import recorded_costs
from advnorm.papers.reproduce import numbers_of, record_path, with_claims
from advnorm.records import (
    MARKS,
    SCALES,
    Measured,
    Reproduction,
    counted,
    read_reproduction,
)

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
MEASURED = Path(papers.__file__).with_name("measured.json")
BEGIN, END = "<!-- results: benchmarks/results.py -->", "<!-- end of results -->"
HEAD = (
    "# What was measured\n\n"
    "Five sentences a paper, then every claim. Numbers are means over seeds ± their "
    "standard error.\n\n{first}\n\n"
    "## Every claim\n\n"
    "One line a claim, as the inequalities that are claimed, with the paper's numbers and "
    "with ours; ± is the standard error over seeds. One holds (✓), or does not (✗), when "
    "a t-test over seeds says so at 5%, corrected for the number of the claim's "
    "comparisons; else, and below three seeds, it cannot be told (?). Of a claim with "
    "many, those that decide are shown, the closest calls. `full` is the paper's "
    "setting; `reduced` keeps the claim on real data and small machines "
    "([reproduce.md](../how-to/reproduce.md)). The cost is what the runs took on the "
    "machine the record names; for what is not measured, the operations of one seed and "
    "the time they take at 40% of the device's peak. Pages: "
    "{pages}. Their figures are drawn from the records by `python benchmarks/figures.py`. "
    "How claims are judged, and where the rule is weak: "
    "[claims](../explanation/claims.md). Records: `PAPER/ARTEFACT-SCALE.json`. "
    "`python benchmarks/results.py` writes this file.\n\n{summary}\n\n"
    "| artefact | claim | published | ours | scale, seeds | verdict | command | cost |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def main() -> None:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    kept = found()
    records = {
        name: [with_claims(ARTEFACTS[name], record) for record in each]
        for name, each in kept.items()
    }
    pairs = [p for name in kept for p in zip(kept[name], records[name], strict=True)]
    wanted = {
        record_path(RESULTS, new.artefact, new.scale): new.model_dump_json()
        for old, new in pairs
        if old != new
    }
    wanted |= {
        RESULTS / "README.md": page(records),
        ROOT / "README.md": summarized((ROOT / "README.md").read_text(), records),
        MEASURED: measured(records),
    }
    everything = [record for each in records.values() for record in each]
    wanted |= {
        path: updated_page(path, everything)
        for path in RESULTS.glob("*.md")
        if path.name != "README.md"
    }
    stale = {
        p: text for p, text in wanted.items() if not p.exists() or p.read_text() != text
    }
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)}: {'not what the records say' if check else 'new'}")
        if not check:
            path.write_text(text)
    raise SystemExit(bool(check and stale))


def found() -> dict[str, list[Reproduction]]:
    """Return the kept records by artefact, larger scales first."""
    records: dict[str, list[Reproduction]] = {}
    for scale in reversed(SCALES):
        for path in sorted(RESULTS.glob(f"*/*-{scale}.json")):
            record = read_reproduction(path)
            records.setdefault(record.artefact, []).append(record)
    return records


def page(records: dict[str, list[Reproduction]]) -> str:
    """Return docs/results/README.md."""
    lines = [line for name in captions() for line in rows(name, records.get(name, []))]
    pages = sorted(path.name for path in RESULTS.glob("*.md") if path.name != "README.md")
    links = ", ".join(f"[{name.removesuffix('.md')}]({name})" for name in pages)
    head = HEAD.format(pages=links, summary=summary(records), first=summary_page(records))
    return head + "\n".join(lines) + "\n"


def rows(name: str, records: list[Reproduction]) -> list[str]:
    """Return an artefact's lines."""
    if name in ILLUSTRATIONS:
        return [line(name, f"({ILLUSTRATIONS[name]})", "", "", "", "", "", "")]
    artefact = ARTEFACTS[name]
    if not records:
        costs = recorded_costs().get(name, {})
        told = "; ".join(f"{scale} {costs[scale]}" for scale in costs)
        claims = "<br>".join(claim.text for claim in artefact.claims)
        what = f"`advnorm reproduce {name}`"
        return [line(name, claims, "", "", "", "not measured", what, told)]
    return [text for record in records for text in claimed(artefact, record)]


def claimed(artefact: Artefact, record: Reproduction) -> list[str]:
    """Return a line for each claim of a record."""
    command = f"`advnorm reproduce {record.artefact} --scale {record.scale}"
    command += f" --seeds {record.seeds}"
    made = some(record)
    command += "".join(f" --set 'row={row}'" for row in record.rows if made) + "`"
    cost = f"{record.seconds / 60:.1f} min"
    where = f"{record.scale}, {record.seeds}" + (f"; {made}" if made else "")
    where += "" if record.n is None else f"; n={record.n}"
    if not artefact.claims:
        shown = "drawn; no claim that a machine can check"
        return [line(record.artefact, shown, "", "", where, "measured", command, cost)]
    theirs = {
        row: {column: Measured(values=(one.value,)) for column, one in cells.items()}
        for row, cells in artefact.published.items()
    }
    lines, numbers = [], numbers_of(artefact, record)
    for claim, ours in zip(artefact.claims, record.claims, strict=True):
        told, said = claim.check_parts(numbers), claim.check_parts(theirs)
        shown = [said[n].why for n in deciding(told if ours.applicable else said)]
        published = [why for why in shown if "not measured" not in why]
        lines.append(
            line(
                record.artefact,
                ours.text,
                "; ".join(published),
                ours.why,
                where,
                ours.summary,
                command,
                cost,
            )
        )
    return lines


def some(record: Reproduction) -> str:
    """Return how many rows a record has, if it has not all."""
    rows = {job.row for job in ARTEFACTS[record.artefact].jobs(record.scale)}
    there = rows & record.rows.keys()
    return f"{len(there)} of {len(rows)} rows" if len(there) < len(rows) else ""


def line(*cells: str) -> str:
    """Return one line of the table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def summary(records: dict[str, list[Reproduction]]) -> str:
    """Count the verdicts."""
    lines = []
    for scale in reversed(SCALES):
        made = [r for each in records.values() for r in each if r.scale == scale]
        claims = [claim for record in made for claim in record.claims]
        verdicts = Counter(claim.verdict for claim in claims if claim.applicable)
        if made and scale != "smoke":
            told = ", ".join(counted(verdicts[name], name) for name in MARKS)
            rest = len(claims) - verdicts.total()
            told += f"; {rest} are about another scale" if rest else ""
            lines.append(f"At `{scale}`, {len(made)} tables and figures: {told}.")
    left = len(ARTEFACTS) - len(records)
    return " ".join([*lines, f"Not measured: {left} of {len(ARTEFACTS)}."])


def summarized(readme: str, records: dict[str, list[Reproduction]]) -> str:
    """Return README with its summary between the marks."""
    block = f"{BEGIN}\n{summary(records)}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", block, readme, flags=re.DOTALL)


def measured(records: dict[str, list[Reproduction]]) -> str:
    """Return what ``advnorm list papers`` shows."""
    kept = {
        name: [
            {
                "scale": record.scale,
                "seeds": record.seeds,
                "rows": some(record),
                "minutes": round(record.seconds / 60, 1),
                "verdicts": [claim.verdict for claim in record.claims if claim.applicable],
            }
            for record in records[name]
        ]
        for name in captions()
        if name in records
    }
    return json.dumps(kept, indent=1) + "\n"


if __name__ == "__main__":
    main()
