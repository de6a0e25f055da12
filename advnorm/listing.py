"""What ``advnorm list`` prints: every name of every registry, with a summary."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.resources import files

from advnorm.attacks import ATTACKS
from advnorm.attacks.names import attack_form
from advnorm.bounds import METHODS
from advnorm.data import AUGMENTATIONS, CORRUPTIONS, DATA
from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.registry import options_of as question_options
from advnorm.diagnosis.registry import source_of
from advnorm.evaluation.checks import CHECKS
from advnorm.gradients import GRADIENTS
from advnorm.models import MODELS
from advnorm.models import options as model_options
from advnorm.norms import NORMS
from advnorm.objectives import OBJECTIVES
from advnorm.papers import ARTEFACTS, ILLUSTRATIONS
from advnorm.papers.artefact import captions
from advnorm.papers.cost import recorded_costs
from advnorm.recipes import RECIPES
from advnorm.records import Record, Scale, Verdict, counted
from advnorm.registry import Registry, options, unknown
from advnorm.runs.export import FORMATS
from advnorm.surrogates import SURROGATES

KINDS: dict[str, Registry] = {  # type: ignore[type-arg]
    "recipes": RECIPES,
    "data": DATA,
    "augmentations": AUGMENTATIONS,
    "models": MODELS,
    "norms": NORMS,
    "objectives": OBJECTIVES,
    "gradients": GRADIENTS,
    "attacks": ATTACKS,
    "certificates": METHODS,
    "corruptions": CORRUPTIONS,
    "checks": CHECKS,
    "surrogates": SURROGATES,
    "questions": QUESTIONS,
    "formats": FORMATS,
}

OPTIONS: dict[str, Callable[[str], Mapping[str, object]]] = {
    "models": model_options,
    "norms": lambda name: options(NORMS[name]),
    "objectives": lambda name: options(OBJECTIVES[name]),
    "gradients": lambda name: options(GRADIENTS[name]),
    "questions": question_options,
}
"""The kinds whose names have settings of their own, and where those are known."""


def listing(kind: str) -> str:
    """Return the names of one kind, or of all."""
    if kind == "papers":
        return papers()
    if kind != "all" and kind not in KINDS:
        raise unknown("kind of name", kind, ["all", "papers", *KINDS])
    chosen = KINDS if kind == "all" else {kind: KINDS[kind]}
    return "\n\n".join(_section(title, registry) for title, registry in chosen.items())


def papers() -> str:
    """Return every table and figure of the papers: claims, cost, what was measured."""
    costs, kept = recorded_costs(), kept_records()
    lines = []
    for name in captions():
        if name in ILLUSTRATIONS:
            lines.append(f"  {name}: {ILLUSTRATIONS[name]}, nothing to measure")
            continue
        artefact = ARTEFACTS[name]
        lines.append(f"  {name}: {artefact.title}")
        lines += [f"      full needs {artefact.needs}"] if artefact.needs else []
        lines += [f"      claim: {claim.text}" for claim in artefact.claims]
        lines += [f"      {scale}: {cost} a seed" for scale, cost in costs[name].items()]
        lines += [f"      measured: {text}" for text in kept.get(name, ())]
        lines += ["      not measured"] if name not in kept else []
    return "\n".join(["papers", *lines])


class KeptRecord(Record):
    """A reproduction whose record is kept in docs/results."""

    scale: Scale
    seeds: int
    rows: str
    """How many of the rows it has, if not all."""
    minutes: float
    verdicts: tuple[Verdict, ...]

    def __str__(self) -> str:
        counts = Counter(self.verdicts)
        claims = ", ".join(counted(count, verdict) for verdict, count in counts.items())
        verdicts = f": {claims}" if claims else ""
        some = f", {self.rows}" if self.rows else ""
        return f"{self.scale}, {self.seeds} seeds{some}, {self.minutes:g} minutes{verdicts}"


def kept_records() -> dict[str, list[KeptRecord]]:
    """Return by artefact what ``python benchmarks/results.py`` wrote to measured.json."""
    text = files("advnorm.papers").joinpath("measured.json").read_text()
    return {
        name: [KeptRecord.model_validate(record) for record in records]
        for name, records in json.loads(text).items()
    }


def _section(title: str, registry: Registry) -> str:  # type: ignore[type-arg]
    width = max(len(name) for name in registry)
    lines = [
        f"  {name:<{width}}  {_plain(summary(title, name))}{_settings(title, name)}"
        for name in registry
    ]
    return "\n".join([title, *lines])


def summary(kind: str, name: str) -> str:
    """Return a name's line; that of a question with the paper that asks it."""
    text = ATTACKS[name].title if kind == "attacks" else KINDS[kind].summary(name)
    if kind != "questions" or source_of(name) in text:
        return text
    return f"{text.removesuffix('.')} ({source_of(name)})."


def _settings(kind: str, name: str) -> str:
    """Return the settings of a name with their defaults, as a recipe writes them.

    >>> _settings("models", "vgg8"), _settings("norms", "none"), _settings("data", "mnist")
    (' [width=64]', '', '')
    >>> _settings("attacks", "fgsm")
    ' [+random, +least_likely]'
    """
    if kind == "attacks":
        words = attack_form(ATTACKS[name]).options
        forms = ", ".join(option.form(word) for word, option in words.items())
        return f" [{forms}]" if forms else ""
    settings = OPTIONS[kind](name) if kind in OPTIONS else {}
    shown = ", ".join(f"{key}={_value(value)}" for key, value in settings.items())
    return f" [{shown}]" if shown else ""


def _value(value: object) -> str:
    words = {True: "true", False: "false", None: "null"}
    return words[value] if isinstance(value, bool | None) else str(value)


def _plain(text: str) -> str:
    """Drop the marks of a docstring that a terminal does not need."""
    return text.replace("``", "")
