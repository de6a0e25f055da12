"""Evaluates a run with perturbed batch-norm statistics; what is finished is kept."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import perf_counter

import torch

from advnorm import ranks
from advnorm.data import Batch
from advnorm.evaluation.perturbed_statistics import (
    Perturbation,
    directions,
    run_perturbed,
)
from advnorm.norms import Domain, MixtureNorm, check_perturbable, route
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe
from advnorm.records import Result, Run, ThreatRecord, Verdicts, mark_of
from advnorm.runs.condition import with_training
from advnorm.runs.load import LoadedRun, load_run
from advnorm.training.build import check_recipe, choose_device


def perturb_run(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Judge the run's model at each direction, part and radius of ``perturbation``.

    ``recipe`` is the run's own, with ``perturbation`` and ``evaluation`` changed at will.
    Under torchrun the ranks share the samples, except where batch statistics are perturbed:
    these are of whole batches, and of one process.
    """
    check_recipe(recipe)
    spec = recipe.perturbation
    wanted = [
        Perturbation(direction, part, batch=spec.statistics == "batch", groups=spec.groups)
        for direction, part in product(spec.directions, spec.parts)
    ]
    if recipe.evaluation.batch_size % spec.groups:
        raise ValueError(
            f"perturbation.groups={spec.groups} does not divide evaluation.batch_size="
            f"{recipe.evaluation.batch_size}: change one of them"
        )
    where = choose_device(device)
    with ranks.process_group(where), ExitStack() as held:
        if spec.statistics == "batch":
            ranks.require_single_process(
                "perturbation.statistics=batch needs whole batches"
            )
        progress = progress if progress and ranks.is_first() else Quiet()
        ranks.run_on_first(lambda: held.enter_context(run.lock()))
        subject = load_run(run, recipe, root, where, progress)
        check_perturbable(subject.model)
        return [
            result for what in wanted for result in _curve(run, subject, what, progress)
        ]


def _curve(
    run: Run, subject: LoadedRun, what: Perturbation, progress: Progress
) -> Iterator[Result]:
    """Yield a result a radius, all along one direction."""
    with _routed(subject):
        attacked = _attacked(subject) if what.direction == "adversarial" else None
        found = directions(subject.model, what, seed=subject.recipe.seed, attacked=attacked)
        ranks.broadcast(side for shift in found.values() for side in shift)
        for radius in subject.recipe.perturbation.radii:
            start, shifts = perf_counter(), what.shifts(found, radius)
            result = _result(subject, what, radius)
            known = run.result(result.key)
            seen = f"{known.fingerprint if known else None} {result.fingerprint}"
            ranks.require_same_files(seen, run.path)
            if known and known.fingerprint == result.fingerprint:
                yield with_training(run, known, subject)
                continue
            total, batches = _samples(subject)
            verdicts = run_perturbed(subject.model, batches, what, shifts, total=total)
            named = verdicts.model_copy(update={"fingerprint": result.fingerprint})
            ranks.run_on_first(partial(run.write_verdicts, result.key, named))
            result = result.model_copy(
                update={"accuracy": verdicts.accuracy(), "seconds": perf_counter() - start}
            )
            ranks.run_on_first(partial(run.write_result, result))
            progress.line(f"{result.key}: {result.accuracy}{mark_of(result.training)}")
            yield result


def _result(subject: LoadedRun, what: Perturbation, radius: float) -> Result:
    """Return the record of one radius, its accuracy still to be measured."""
    spec = subject.recipe.perturbation
    threat = ThreatRecord(norm=what.part, eps=radius)
    result = Result(
        condition=what.name,
        kind="statistics",
        settings={"groups": what.groups, "attacked": spec.attack_samples},
        threat=threat,
        accuracy=Verdicts().accuracy(),
        data=subject.data.name,
        split=spec.split,
        weights=subject.weights,
        statistics=spec.statistics,
        branch=_branch(subject),
        seed=subject.recipe.seed,
        seconds=0.0,
    )
    facts = [
        result.model_dump(mode="json", exclude={"training"}),
        subject.data.digest(),
        _samples(subject)[0],
        subject.recipe.evaluation.batch_size if what.batch else None,
    ]
    digest = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    told = {"fingerprint": digest, "training": subject.training}
    return result.model_copy(update=told)


def _samples(subject: LoadedRun) -> tuple[int, Iterator[Batch]]:
    recipe, data = subject.recipe, subject.data
    split = data.test if recipe.perturbation.split == "test" else data.train
    count = min(len(split), recipe.evaluation.samples or len(split))
    return count, split.batches(
        torch.arange(count),
        batch_size=recipe.evaluation.batch_size * ranks.size(),
        device=subject.device,
    )


def _attacked(subject: LoadedRun) -> Batch:
    train, count = subject.data.train, subject.recipe.perturbation.attack_samples
    rows = torch.arange(min(count, len(train)))
    return next(train.batches(rows, batch_size=len(rows), device=subject.device))


def _branch(subject: LoadedRun) -> Domain | None:
    if not any(isinstance(layer, MixtureNorm) for layer in subject.model.modules()):
        return None
    return "clean" if subject.recipe.evaluation.branch == "clean" else "adversarial"


def _routed(subject: LoadedRun) -> AbstractContextManager[None]:
    branch = _branch(subject)
    return route(subject.model, domain=branch) if branch else nullcontext()
