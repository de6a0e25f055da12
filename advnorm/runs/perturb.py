"""Evaluates a run with perturbed batch-norm statistics; finished results are cached."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
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
from advnorm.norms import Domain, check_perturbable, has_branches, route
from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.records import Result, Run, ThreatRecord, Verdicts, mark_of
from advnorm.runs.condition import with_training
from advnorm.runs.load import LoadedRun, open_run
from advnorm.training.recipe_checks import check_recipe


def perturb_run(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Measure accuracy at each direction, part and radius of ``perturbation``.

    ``recipe`` is the run's own, with ``perturbation`` and ``evaluation`` changed at will.
    Under torchrun the ranks share the samples; with perturbed batch statistics, which need
    whole batches, several ranks are refused.
    """
    check_recipe(recipe)
    spec = recipe.perturbation
    perturbations = [
        Perturbation(
            direction,
            part,
            batch=spec.statistics == "batch",
            groups=spec.groups,
            draw=draw,
        )
        for direction, part, draw in product(spec.directions, spec.parts, range(spec.draws))
        if direction != "adversarial" or draw == 0
    ]
    if recipe.evaluation.batch_size % spec.groups:
        raise ValueError(
            f"perturbation.groups={spec.groups} does not divide evaluation.batch_size="
            f"{recipe.evaluation.batch_size}: change one of them"
        )
    whole = "perturbation.statistics=batch needs whole batches"
    with open_run(
        run,
        recipe,
        root=root,
        device=device,
        progress=progress,
        single_process=whole if spec.statistics == "batch" else None,
    ) as loaded:
        check_perturbable(loaded.model)
        return [
            result
            for perturbation in perturbations
            for result in _curve(run, loaded, perturbation)
        ]


def _curve(run: Run, loaded: LoadedRun, perturbation: Perturbation) -> Iterator[Result]:
    """Yield a result for each radius along one direction."""
    with _routed(loaded):
        attacked = _attacked(loaded) if perturbation.direction == "adversarial" else None
        unit_shifts = directions(
            loaded.model, perturbation, seed=loaded.recipe.seed, attacked=attacked
        )
        ranks.broadcast(side for shift in unit_shifts.values() for side in shift)
        for radius in loaded.recipe.perturbation.radii:
            start, shifts = perf_counter(), perturbation.shifts(unit_shifts, radius)
            result = _result(loaded, perturbation, radius)
            cached = run.result(result.key)
            seen = f"{cached.fingerprint if cached else None} {result.fingerprint}"
            ranks.require_same_files(seen, run.path)
            if cached and cached.fingerprint == result.fingerprint:
                yield with_training(run, cached, loaded)
                continue
            total, batches = _samples(loaded)
            verdicts = run_perturbed(
                loaded.model, batches, perturbation, shifts, total=total
            )
            named = verdicts.model_copy(update={"fingerprint": result.fingerprint})
            ranks.run_on_first(partial(run.write_verdicts, result.key, named))
            result = result.model_copy(
                update={"accuracy": verdicts.accuracy(), "seconds": perf_counter() - start}
            )
            ranks.run_on_first(partial(run.write_result, result))
            loaded.progress.line(
                f"{result.key}: {result.accuracy}{mark_of(result.training)}"
            )
            yield result


def _result(loaded: LoadedRun, perturbation: Perturbation, radius: float) -> Result:
    """Return the record of one radius, its accuracy still to be measured."""
    spec = loaded.recipe.perturbation
    threat = ThreatRecord(norm=perturbation.part, eps=radius)
    result = Result(
        condition=perturbation.name,
        kind="statistics",
        settings={"groups": perturbation.groups, "attacked": spec.attack_samples},
        threat=threat,
        accuracy=Verdicts().accuracy(),
        data=loaded.data.name,
        split=spec.split,
        weights=loaded.weights,
        statistics=spec.statistics,
        branch=_branch(loaded),
        seed=loaded.recipe.seed,
        seconds=0.0,
    )
    facts = [
        result.model_dump(mode="json", exclude={"training"}),
        loaded.data.digest(),
        _samples(loaded)[0],
        loaded.recipe.evaluation.batch_size if perturbation.batch else None,
    ]
    digest = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return result.model_copy(update={"fingerprint": digest, "training": loaded.training})


def _samples(loaded: LoadedRun) -> tuple[int, Iterator[Batch]]:
    recipe, data = loaded.recipe, loaded.data
    split = data.test if recipe.perturbation.split == "test" else data.train
    count = min(len(split), recipe.evaluation.samples or len(split))
    return count, split.batches(
        torch.arange(count),
        batch_size=recipe.evaluation.batch_size * ranks.size(),
        device=loaded.device,
    )


def _attacked(loaded: LoadedRun) -> Batch:
    train, count = loaded.data.train, loaded.recipe.perturbation.attack_samples
    rows = torch.arange(min(count, len(train)))
    return next(train.batches(rows, batch_size=len(rows), device=loaded.device))


def _branch(loaded: LoadedRun) -> Domain | None:
    if not has_branches(loaded.model):
        return None
    return "clean" if loaded.recipe.evaluation.branch == "clean" else "adversarial"


def _routed(loaded: LoadedRun) -> AbstractContextManager[None]:
    branch = _branch(loaded)
    return route(loaded.model, domain=branch) if branch else nullcontext()
