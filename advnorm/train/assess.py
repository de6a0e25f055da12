"""Evaluates a run: its weights, its data, the attacks of its recipe; resumable."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from safetensors.torch import save as dump_tensors
from torch import nn

from advnorm import ranks
from advnorm.data import Batch, DataSet, every_set
from advnorm.evaluate import Cell, cells, judge
from advnorm.evaluate.audit.examine import flags_of, probe
from advnorm.evaluate.audit.outputs import FEW
from advnorm.evaluate.certified import certified_first, refuse_meeting
from advnorm.evaluate.checks import check_labels
from advnorm.evaluate.engine import Judgement, check
from advnorm.files import write_atomically
from advnorm.models import untiled
from advnorm.norms import Domain, MixtureNorm, check_statistics, route
from advnorm.norms.route import DOMAINS
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe
from advnorm.records import Result, Run, Verdicts, result_key, with_flags
from advnorm.train import checkpoints
from advnorm.train.build import check as check_names
from advnorm.train.build import choose_device, threats
from advnorm.train.parts import load, network
from advnorm.train.state import restore


class Subject(NamedTuple):
    """What is evaluated."""

    recipe: Recipe
    data: DataSet
    model: nn.Module
    weights: str
    device: torch.device
    classes: int
    flags: tuple[str, ...]
    """Symptoms of false robustness that a few passes show."""


def assess(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Run the recipe's evaluation on the run's weights; finished cells are not run again.

    Under torchrun the ranks share the samples; verdicts are those of one process.

    ``recipe`` is the run's own, with its ``evaluation`` changed at will.
    """
    check_names(recipe)
    where = choose_device(device)
    with ranks.joined(where), ExitStack() as held:
        progress = progress if progress and ranks.first() else Quiet()
        ranks.lead(lambda: held.enter_context(run.lock()))
        subject = subject_of(run, recipe, root, where, progress)
        columns = _columns(recipe, subject.data.shape)
        results = [
            _cell(run, tested, cell, progress)
            for tested in _on_each_set(subject, root)
            for cell in columns
        ]
        refuse_meeting((result, run.verdicts(result.key)) for result in run.results())
        return results


def _columns(recipe: Recipe, shape: Sequence[int]) -> list[Cell]:
    spec = recipe.evaluation
    if not spec.attacks:
        raise ValueError("evaluation.attacks is empty: name at least one, such as pgd-40")
    columns = cells(
        spec.attacks,
        threats(recipe),
        recipe.threat.bounds,
        step_ratio=spec.step_ratio,
        shape=shape,
    )
    return certified_first(columns, spec.certify)


def load_model(
    run: Run, recipe: Recipe, data: DataSet, *, weights: str, warnings: list[str]
) -> tuple[nn.Module, str]:
    """Return the run's network with its best or last weights, and their name and digest."""
    kind = "best" if weights == "best" else "state"
    found = checkpoints.load(run.checkpoints, kind, warnings=warnings)
    if found is None:
        raise FileNotFoundError(
            f"{run.path} has no whole {weights!r} checkpoint: train it (on), or add --set "
            f"weights={'last' if weights == 'best' else 'best'}"
        )
    model = network(recipe, data)
    model.to(torch.float64 if recipe.precision == "float64" else torch.float32)
    try:
        restore(found.tensors, model, None)
    except RuntimeError as error:
        raise ValueError(
            f"{run.path / 'recipe.yaml'} is not the recipe that {found.path.name} was "
            f"trained with: {str(error).splitlines()[-1].strip()}"
        ) from None
    check_statistics(model)
    return untiled(model), f"{found.path.stem} sha256:{found.digest}"


def subject_of(
    run: Run, recipe: Recipe, root: Path | None, device: torch.device, progress: Progress
) -> Subject:
    """Load the run's model and data, and try them out together."""
    data = load(recipe, root=root)
    warnings: list[str] = []
    model, weights = load_model(
        run, recipe, data, weights=recipe.evaluation.weights, warnings=warnings
    )
    for warning in warnings:
        progress.line(warning)
    return examined(recipe, data, model, weights, device)


def examined(
    recipe: Recipe, data: DataSet, model: nn.Module, weights: str, device: torch.device
) -> Subject:
    """Try a model and data out together, on a few samples."""
    classes = _fits(recipe, model.to(device), data, device)
    flags = flags_of(probe(model, first(data, FEW, device), recipe.threat.build()))
    return Subject(recipe, data, model, weights, device, classes, flags)


def first(data: DataSet, count: int, device: torch.device) -> Batch:
    """Return the first test samples, as many as there are."""
    order = torch.arange(min(count, len(data.test)))
    return next(data.test.batches(order, batch_size=len(order), device=device))


def _fits(recipe: Recipe, model: nn.Module, data: DataSet, device: torch.device) -> int:
    """Try the model on a few test samples; return the number of classes."""
    if not len(data.test):
        raise ValueError(f"{data.name} has no test samples: name another evaluation.data")
    few = torch.arange(min(8, len(data.test)))
    batch = next(data.test.batches(few, batch_size=8, device=device))
    classes = check(model, batch, bounds=recipe.threat.bounds)
    check_labels(data.test.labels, count=len(data.test), classes=classes)
    return classes


def _on_each_set(subject: Subject, root: Path | None) -> Iterator[Subject]:
    """Yield the subject on its own data, or on each set that the evaluation names."""
    recipe = subject.recipe
    if recipe.evaluation.data is None:
        yield subject
        return
    for name in every_set(recipe.evaluation.data):
        data = _other(recipe, name, subject.data, root)
        _fits(recipe, subject.model, data, subject.device)
        yield subject._replace(data=data)


def _other(recipe: Recipe, name: str, data: DataSet, root: Path | None) -> DataSet:
    """Read a data set that the evaluation names instead of the run's own."""
    spec = recipe.data.model_copy(update={"name": name})
    other = load(recipe.model_copy(update={"data": spec}), root=root)
    if other.shape != data.shape or len(other.classes) != len(data.classes):
        raise ValueError(
            f"{other.name} has images of shape {other.shape} and {len(other.classes)} "
            f"classes; the model was made for {data.shape} and {len(data.classes)}"
        )
    return other


def _cell(run: Run, subject: Subject, cell: Cell, progress: Progress) -> Result:
    """Judge one cell on the branch that the recipe names, where the model has branches."""
    branch = subject.recipe.evaluation.branch
    if not any(isinstance(layer, MixtureNorm) for layer in subject.model.modules()):
        if branch == "clean":
            raise ValueError(
                "evaluation.branch=clean, but the model has no mixture norm, and so no "
                "branches: leave it out"
            )
        return _judged(run, subject, cell, None, progress)
    if branch != "worst":
        return _judged(run, subject, cell, branch, progress)
    both = [_judged(run, subject, cell, domain, progress) for domain in DOMAINS]
    verdicts = worst([run.verdicts(result.key) for result in both])
    result = both[0].model_copy(
        update={
            "branch": "worst",
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(cell.counts),
            "seconds": sum(result.seconds for result in both),
            "flags": tuple(dict.fromkeys(flag for r in both for flag in r.flags)),
        }
    )
    ranks.lead(partial(run.write_verdicts, result.key, verdicts))
    ranks.lead(partial(run.write_result, result))
    progress.line(f"{result.key}: {result.accuracy}")
    return result


def worst(found: Sequence[Verdicts]) -> Verdicts:
    """Combine verdicts on the same samples: a sample stands only if it stands in all."""
    rows = [zip(v.predictions, v.robust, v.by, strict=True) for v in found]
    fallen = [
        next((row for row in each if not row[1]), each[0])
        for each in zip(*rows, strict=True)
    ]
    predictions, robust, by = zip(*fallen, strict=True)
    curves = zip(*(v.curve for v in found), strict=True)
    curve = tuple(tuple(map(all, zip(*each, strict=True))) for each in curves)
    return found[0].model_copy(
        update={
            "predictions": predictions,
            "robust": robust,
            "by": by,
            "certified": tuple(map(all, zip(*(v.certified for v in found), strict=True))),
            "curve": curve,
        }
    )


def _judged(
    run: Run, subject: Subject, cell: Cell, branch: Domain | None, progress: Progress
) -> Result:
    """Judge one cell on one branch, from where it stopped if the settings are the same."""
    spec, test = subject.recipe.evaluation, subject.data.test
    order = torch.arange(min(len(test), spec.samples or len(test)))
    other = subject.data.name if spec.data is not None else None
    key = result_key(cell.name, cell.threat_record, branch, other)
    fingerprint = _fingerprint(subject, cell, branch, len(order))
    known, done = run.result(key), run.verdicts(key)
    seen = f"{known.fingerprint if known else None} {done.fingerprint} {len(done.samples)}"
    ranks.see_the_same(seen, run.path)
    if known and known.fingerprint == fingerprint:
        return known
    if done.fingerprint != fingerprint:
        done = Verdicts(fingerprint=fingerprint)
    start, rest = perf_counter(), order[len(done.samples) :]
    if len(rest):
        with route(subject.model, domain=branch or "adversarial"):
            done = judge(
                subject.model,
                test.batches(
                    rest,
                    batch_size=spec.batch_size * ranks.size(),
                    device=subject.device,
                ),
                cell,
                total=len(order),
                seed=subject.recipe.seed,
                done=done,
                save=lambda found: _save(
                    run, key, found, spec.examples if cell.threat else 0
                ),
                progress=progress,
            )
    result = Result(
        attack=cell.name,
        settings=cell.settings,
        threat=cell.threat_record,
        certificate=cell.proves,
        accuracy=done.accuracy(),
        curve=done.accuracies(cell.counts),
        data=subject.data.name,
        other=other is not None,
        weights=subject.weights,
        branch=branch,
        seed=subject.recipe.seed,
        seconds=perf_counter() - start,
        flags=subject.flags if cell.searches else (),
        notes=cell.notes(subject.classes),
        fingerprint=fingerprint,
    )
    result = with_flags(result, run.audits())
    ranks.lead(partial(run.write_result, result))
    progress.line(f"{result.key}: {result.accuracy}")
    for text in (*result.flags, *result.notes):
        progress.line(f"  ! {text}")
    return result


def _fingerprint(subject: Subject, cell: Cell, branch: Domain | None, count: int) -> str:
    """Hash everything that decides the verdicts of a cell."""
    recipe = subject.recipe
    facts = {
        "weights": subject.weights,
        "data": [subject.data.name, subject.data.digest()],
        "seed": recipe.seed,
        "samples": count,
        "branch": branch,
        "cell": [cell.key, cell.settings, repr(cell.threat), recipe.threat.bounds],
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _save(run: Run, key: str, found: Judgement, count: int) -> None:
    """Write the verdicts so far, and the first images where there are any to show."""
    if found.examples is not None and count:
        path, shown = run.examples(key), found.examples._asdict()
        path.parent.mkdir(exist_ok=True)
        tensors = {name: value[:count].clone() for name, value in shown.items()}
        write_atomically(path, dump_tensors(tensors))
    run.write_verdicts(key, found.verdicts)
