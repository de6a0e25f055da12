"""What was measured and is kept in docs/results, as the package knows it."""

import json
from collections import Counter
from importlib.resources import files

from advnorm.records import Record, Scale, Verdict, counted


class KeptRecord(Record):
    """One reproduction that is kept."""

    scale: Scale
    seeds: int
    rows: str
    """How many of them, where they are not all."""
    minutes: float
    verdicts: tuple[Verdict, ...]

    def __str__(self) -> str:
        counts = Counter(self.verdicts)
        claims = ", ".join(counted(count, verdict) for verdict, count in counts.items())
        verdicts = f": {claims}" if claims else ""
        some = f", {self.rows}" if self.rows else ""
        return f"{self.scale}, {self.seeds} seeds{some}, {self.minutes:g} minutes{verdicts}"


def measured() -> dict[str, list[KeptRecord]]:
    """Return what ``python benchmarks/results.py`` found, by artefact."""
    text = files("advnorm.papers").joinpath("measured.json").read_text()
    return {
        name: [KeptRecord.model_validate(one) for one in kept]
        for name, kept in json.loads(text).items()
    }
