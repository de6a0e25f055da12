"""Every caption of the five papers, in their order."""

from collections.abc import Iterator

COUNTS: dict[str, dict[str, int]] = {
    "galloway2019": {"figure": 17, "table": 15},
    "xie2020": {"figure": 7, "table": 7},
    "sridhar2021": {"figure": 1, "table": 6},
    "sitawarin2021": {"figure": 6, "table": 4},
    "apart2022": {"figure": 2, "table": 3},
}
"""How many figures and tables each paper has."""


def captions() -> Iterator[str]:
    """Yield the name of each, such as ``xie2020/table3``."""
    for paper, kinds in COUNTS.items():
        for kind, count in kinds.items():
            yield from (f"{paper}/{kind}{number}" for number in range(1, count + 1))
