"""What an evaluation returns: results, verdicts, tables, and adversarial images."""

from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

from torch import Tensor

from advnorm.records import Headline, Result, Verdicts, headlines

WIDTH = 88
"""Characters of a line of a note."""


@dataclass(frozen=True)
class Evaluation:
    """Results by key, each with one verdict per sample."""

    results: tuple[Result, ...]
    verdicts: dict[str, Verdicts]
    adversarial: dict[str, Tensor] = field(default_factory=dict)
    """With ``keep="adversarial"``: the images of each condition that searches, by key.

    One image a sample, in the samples' order and in the precision of the search. Where an
    attack broke a sample, it is the image that did, confirmed inside the ball and the
    bounds; elsewhere (robust, certified, or misclassified as it is) the clean image.
    """

    def __str__(self) -> str:
        """Return the worst case first, then each result, radii, plants, flags and notes."""
        width = max(len(result.key) for result in self.results)
        texts = list(dict.fromkeys(text for r in self.results for text in _notes(r)))
        marks = {text: f"!{number}" for number, text in enumerate(texts, start=1)}
        lines = [
            " ".join([f"{r.key:<{width}}  {r.accuracy}", *(marks[n] for n in _notes(r))])
            for r in self.results
        ]
        radii = [f"  {r.key}: {r.radii}" for r in self.results if r.radii]
        radii += [f"  {r.key}: {r.planted}" for r in self.results if r.planted]
        first = [str(headline) for headline in self.headlines()]
        return "\n".join(
            [*first, *lines, *radii, *(_note(marks[text], text) for text in texts)]
        )

    def headlines(self) -> list[Headline]:
        """Return the worst case over everything that was run, in each ball."""
        return headlines((r, self.verdicts[r.key]) for r in self.results)

    def table(self) -> list[dict[str, Any]]:
        """Return one row per condition: plain values, for csv, json or a data frame.

        ``accuracy`` with ``low`` and ``high``, its 95% interval, are shares of ``n``.
        """
        return [_row(result) for result in self.results]

    def sample_table(self) -> list[dict[str, Any]]:
        """Return one row per sample and condition: label, prediction, robust, and so on.

        ``prediction`` is that under the attack where it succeeded, ``by`` the name of that
        attack, ``certified`` whether a certificate covers the sample (``None``: not tried).
        """
        return [row for key, v in self.verdicts.items() for row in _sample_rows(key, v)]


def _row(result: Result) -> dict[str, Any]:
    threat, accuracy = result.threat, result.accuracy
    low, high = accuracy.interval
    return {
        "key": result.key,
        "condition": result.condition,
        "kind": result.kind,
        "norm": threat.norm if threat else None,
        "eps": threat.eps if threat else None,
        "branch": result.branch,
        "accuracy": accuracy.fraction,
        "low": low,
        "high": high,
        "correct": accuracy.correct,
        "n": accuracy.n,
        "seconds": result.seconds,
        "queries": result.queries,
        "gradients": result.gradients,
        "flags": list(result.flags),
        "notes": list(result.notes),
    }


def _sample_rows(key: str, verdicts: Verdicts) -> list[dict[str, Any]]:
    certified = verdicts.certified or (None,) * len(verdicts.samples)
    names = ("sample", "label", "prediction", "robust", "by", "certified")
    columns = (
        verdicts.samples,
        verdicts.labels,
        verdicts.predictions,
        verdicts.robust,
        verdicts.by,
        certified,
    )
    rows = zip(*columns, strict=True)
    table = [{"key": key, **dict(zip(names, row, strict=True))} for row in rows]
    for line, frequency in zip(table, verdicts.frequencies, strict=False):
        line["frequency"] = frequency
    for line, bracket in zip(table, verdicts.radii, strict=False):
        line["certified_radius"], line["broken_radius"] = bracket
    return table


def _notes(result: Result) -> tuple[str, ...]:
    """Return what has to be said beside a number: flags, then notes."""
    return (*result.flags, *result.notes)


def _note(mark: str, text: str) -> str:
    return fill(
        text,
        WIDTH,
        initial_indent=f"{mark} ",
        subsequent_indent="   ",
        break_on_hyphens=False,
    )
