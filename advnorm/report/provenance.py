"""Where the numbers of a run come from: digests, and the commands that make it again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePath
from shlex import quote

from advnorm.records import ADAPTED, Result, Setting
from advnorm.report.groups import ReportRun


@dataclass(frozen=True)
class RunProvenance:
    """The digests of a run, and its commands."""

    name: str
    recipe: str
    """SHA-256 of ``recipe.yaml``."""
    weights: tuple[str, ...]
    """Each checkpoint that was tested, with its digest."""
    commands: str


def provenance(run: ReportRun) -> RunProvenance:
    """Return what is known of a run."""
    weights = (result.weights for result in run.results.values())
    return RunProvenance(
        run.name,
        sha256(run.text.encode(errors="surrogateescape")).hexdigest(),
        tuple(dict.fromkeys(weights)),
        "\n".join(commands(run)),
    )


def commands(run: ReportRun) -> Iterator[str]:
    """Yield the commands that train and evaluate a run again, in a new folder."""
    again = quote(f"again/{PurePath(run.name).name}")
    if run.epochs:
        yield f"advnorm train {quote(str(run.run.path / 'recipe.yaml'))} --out {again}"
    target = again if run.epochs else quote(str(run.run.path))
    tested = [r for r in run.results.values() if r.kind != "statistics"]
    yield from (_evaluate(target, own, run) for own in _together(tested))
    if len(tested) < len(run.results):
        yield f"advnorm perturb {target}"
    for question in sorted(run.diagnoses):
        if not question.endswith("_over_training"):
            yield f"advnorm diagnose {target} {quote(question)}"


def _together(results: Sequence[Result]) -> list[list[Result]]:
    """Group results that one command gives: of the same data, adaptation and norm."""
    groups: dict[tuple[tuple[object, ...], str], list[Result]] = {}
    for result in sorted(results, key=lambda result: result.threat is None):
        norm = result.threat.norm if result.threat else ""
        data = (result.data if result.other else "", result.adaptation)
        first = next((key for key in groups if key[0] == data), (data, norm))
        groups.setdefault((data, norm) if norm else first, []).append(result)
    return list(groups.values())


def _evaluate(target: str, results: Sequence[Result], run: ReportRun) -> str:
    conditions = (result.condition.removesuffix(ADAPTED) for result in results)
    names = ", ".join(dict.fromkeys(conditions))
    radii = sorted({result.threat.eps for result in results if result.threat})
    settings = [f"conditions=[{names}]"]
    settings += [f"eps=[{', '.join(map(_radius, radii))}]"] if radii else []
    first = results[0]
    if first.threat and first.threat.norm != run.recipe.get("threat.norm", "linf"):
        settings.append(f"evaluation.threat.norm={first.threat.norm}")
    certificates = {r.settings.get("certificate") for r in results} - {None}
    settings += [f"certificate={name}" for name in sorted(map(str, certificates))]
    settings += [f"evaluation.data={first.data}"] if first.other else []
    settings += _adaptive(dict(first.adaptation))
    settings += [f"samples={max(result.accuracy.n for result in results)}"]
    branches = {result.branch for result in results} - {None}
    if "clean" in branches:
        settings.append(f"evaluation.branch={'worst' if len(branches) > 1 else 'clean'}")
    return " ".join(["advnorm evaluate", target, *(f"--set {quote(s)}" for s in settings)])


def _adaptive(adaptation: Mapping[str, Setting]) -> list[str]:
    """Return the settings of an adaptive search."""
    head = "adapt.layers."
    layers = [f"'{k.removeprefix(head)}': {v}" for k, v in adaptation.items() if head in k]
    others = [f"{k}={v}" for k, v in adaptation.items() if head not in k]
    return [f"adapt.layers={{{', '.join(layers)}}}"] * bool(layers) + others


def _radius(eps: float) -> str:
    levels = round(eps * 255)
    return f"{levels}/255" if levels and levels / 255 == eps else repr(eps)
