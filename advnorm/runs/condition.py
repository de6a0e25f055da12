"""One condition of a run's evaluation, continued from its cached verdicts."""

import json
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from time import perf_counter

import torch
from safetensors.torch import save as dump_tensors
from torch import Tensor

from advnorm import ranks
from advnorm.data import Batch, corruption_of
from advnorm.evaluation import Condition, run_condition
from advnorm.evaluation.engine import Examples, PassTally
from advnorm.evaluation.planted import planted_test_of, with_planted_test
from advnorm.norms import Domain, has_branches, route
from advnorm.norms.route import DOMAINS
from advnorm.progress import Progress
from advnorm.records import (
    Bracket,
    Result,
    Run,
    Verdicts,
    draws_note,
    mark_of,
    result_key,
    with_flags,
)
from advnorm.runs.load import LoadedRun


def branches_of(loaded: LoadedRun) -> Sequence[Domain | None]:
    """Return the branches of the norms that the recipe asks for; else no branch."""
    branch = loaded.recipe.evaluation.branch
    if has_branches(loaded.model):
        return DOMAINS if branch == "worst" else [branch]
    if branch == "clean":
        raise ValueError(
            "evaluation.branch=clean, but the model has no mixture norm or "
            "affine norm, and so no branches: leave it out"
        )
    return [None]


def evaluate_condition(
    run: Run,
    loaded: LoadedRun,
    condition: Condition,
    branch: Domain | None,
    progress: Progress,
) -> Result:
    """Evaluate one condition on one branch; continue if the settings are the same.

    The result is of the samples that the recipe asks for. Verdicts on more samples stay in
    the cache, so that a look at a few loses nothing.
    """
    spec, test = loaded.recipe.evaluation, loaded.data.test
    count = min(len(test), spec.samples or len(test))
    other = loaded.data.name if spec.data is not None else None
    key = result_key(condition.name, condition.threat_record, branch, other)
    fingerprint = fingerprint_of(loaded, condition, branch)
    cached, verdicts = run.result(key), run.verdicts(key)
    digest = cached.fingerprint if cached else None
    seen = f"{digest} {verdicts.fingerprint} {len(verdicts.samples)}"
    ranks.require_same_files(seen, run.path)
    same = cached is not None and digest == fingerprint
    whole = verdicts.fingerprint == fingerprint and len(verdicts.samples) >= count
    if cached and same and whole and cached.accuracy.n == count:
        return with_training(run, cached, loaded)
    if cached and not same and cached.accuracy.n > count:
        progress.line(f"{key}: replaces {cached.accuracy}, of other settings or weights")
    if verdicts.fingerprint != fingerprint:
        verdicts = Verdicts(fingerprint=fingerprint)
    start, before = perf_counter(), cached.seconds if cached and same else 0.0
    tally = _begin_tally(cached if same else None)
    order = torch.arange(count)[len(verdicts.samples) :]
    if len(order):
        with route(loaded.model, domain=branch or "adversarial"):
            verdicts = run_condition(
                loaded.model,
                test.batches(
                    order,
                    batch_size=spec.batch_size * ranks.size(),
                    device=loaded.device,
                ),
                condition,
                total=count,
                seed=loaded.recipe.seed,
                done=verdicts,
                save=partial(_save, run, key, spec.examples if condition.threat else 0),
                progress=progress,
                tally=tally,
            )
    seconds = before + perf_counter() - start
    result = result_of(loaded, condition, branch, verdicts.first(count), seconds, tally)
    result = _with_planted_test(result, loaded, condition, verdicts.first(count))
    result = with_flags(result, run.audits())
    ranks.run_on_first(partial(run.write_result, result))
    report(result, len(verdicts.samples), progress)
    return result


def _begin_tally(cached: Result | None) -> PassTally:
    """Go on counting passes where a cached result ended."""
    tally = PassTally()
    if cached:
        tally.queries, tally.gradients = cached.queries, cached.gradients
    return tally


def _with_planted_test(
    result: Result, loaded: LoadedRun, condition: Condition, verdicts: Verdicts
) -> Result:
    """Add what a suite's attacks find of planted examples."""
    data, spec = loaded.data.test, loaded.recipe.evaluation
    position = {sample: place for place, sample in enumerate(verdicts.samples)}

    def load(numbers: Tensor) -> Batch:
        places = torch.tensor([position[int(number)] for number in numbers])
        batch = next(data.batches(places, batch_size=len(places), device=loaded.device))
        assert batch.samples.tolist() == numbers.tolist()  # verdicts are in this order
        return batch

    domain: Domain = "clean" if result.branch == "clean" else "adversarial"
    with route(loaded.model, domain=domain):
        test = planted_test_of(
            loaded.model,
            condition,
            verdicts,
            load,
            classes=loaded.classes,
            batch_size=spec.batch_size,
            seed=loaded.recipe.seed,
        )
    return with_planted_test(result, test)


def result_of(
    loaded: LoadedRun,
    condition: Condition,
    branch: Domain | None,
    verdicts: Verdicts,
    seconds: float,
    tally: PassTally | None = None,
) -> Result:
    """Return the record of verdicts on one branch."""
    tally = tally or PassTally()
    fields = condition.result_fields(verdicts, loaded.classes)
    if condition.kind != "corruption":
        fields["corruption"], fields["severity"] = corruption_of(loaded.data.name)
    return Result(
        **fields,
        data=loaded.data.name,
        other=loaded.recipe.evaluation.data is not None,
        weights=loaded.weights,
        training=loaded.training,
        branch=branch,
        seed=loaded.recipe.seed,
        seconds=seconds,
        queries=tally.queries,
        gradients=tally.gradients,
        flags=loaded.flags if condition.searches else (),
        fingerprint=verdicts.fingerprint,
    )


def report(result: Result, cached: int, progress: Progress) -> None:
    """Say the result, and that verdicts on more samples stay, if there are any."""
    more = f"; verdicts on all {cached} stay" if cached > result.accuracy.n else ""
    progress.line(f"{result.key}: {result.accuracy}{mark_of(result.training)}{more}")
    if result.planted:
        progress.line(f"  {result.planted}")
    for text in (*result.flags, *result.notes):
        progress.line(f"  ! {text}")


def with_training(run: Run, cached: Result, loaded: LoadedRun) -> Result:
    """Return a cached result; the run may have gone on since it was made.

    The best weights of an unfinished run may turn out to be those of its end.
    """
    if cached.training == loaded.training:
        return cached
    result = cached.model_copy(update={"training": loaded.training})
    ranks.run_on_first(partial(run.write_result, result))
    return result


def worst_branch(
    run: Run, condition: Condition, branches: Sequence[Result], progress: Progress
) -> Result:
    """Combine the results of all branches: a robust sample is robust on each of them."""
    verdicts = worst_of([run.verdicts(r.key).first(r.accuracy.n) for r in branches])
    draws, own = verdicts.draws_summary(), branches[0].draws
    more = [draws_note(draws)] if draws else []
    result = branches[0].model_copy(
        update={
            "branch": "worst",
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(condition.counts),
            "draws": draws,
            "notes": (*(n for n in branches[0].notes if n != draws_note(own)), *more),
            "seconds": sum(result.seconds for result in branches),
            "queries": sum(result.queries for result in branches),
            "gradients": sum(result.gradients for result in branches),
            "planted": min(
                (result.planted for result in branches if result.planted),
                key=lambda test: (not test.flagged, test.success.interval),
                default=None,
            ),
            "flags": tuple(dict.fromkeys(flag for r in branches for flag in r.flags)),
        }
    )
    ranks.run_on_first(partial(run.write_verdicts, result.key, verdicts))
    ranks.run_on_first(partial(run.write_result, result))
    progress.line(f"{result.key}: {result.accuracy}{mark_of(result.training)}")
    return result


def worst_of(verdicts: Sequence[Verdicts]) -> Verdicts:
    """Combine verdicts on the same samples: a robust one is robust in all of them.

    Of several failures one that needs no attack counts: it holds at radius 0 too.
    """
    rows = [zip(v.predictions, v.robust, v.by, strict=True) for v in verdicts]
    worst = [
        min(
            (row for row in each if not row[1]),
            key=lambda row: bool(row[2]),
            default=each[0],
        )
        for each in zip(*rows, strict=True)
    ]
    predictions, robust, by = zip(*worst, strict=True)
    curves = zip(*(v.curve for v in verdicts), strict=True)
    curve = tuple(tuple(map(all, zip(*each, strict=True))) for each in curves)
    certified = zip(*(v.certified for v in verdicts), strict=True)
    return verdicts[0].model_copy(
        update={
            "predictions": predictions,
            "robust": robust,
            "by": by,
            "certified": tuple(map(all, certified)),
            "curve": curve,
            "draws": tuple(
                tuple(map(all, zip(*rows, strict=True)))
                for rows in zip(*(v.draws for v in verdicts), strict=True)
            ),
            "radii": tuple(
                map(_worst_bracket, zip(*(v.radii for v in verdicts), strict=True))
            ),
        }
    )


def _worst_bracket(brackets: Sequence[Bracket]) -> Bracket:
    """Return the smallest certified and the smallest broken radius."""
    broken = [b for _, b in brackets if b is not None]
    return min(c for c, _ in brackets), min(broken, default=None)


def fingerprint_of(loaded: LoadedRun, condition: Condition, branch: Domain | None) -> str:
    """Hash everything that decides the verdict of a condition on a sample."""
    recipe = loaded.recipe
    threat = repr(condition.threat)
    facts = {
        "weights": loaded.weights,
        "data": [loaded.data.name, loaded.data.digest()],
        "seed": recipe.seed,
        "branch": branch,
        "condition": [condition.key, condition.settings, threat, recipe.threat.bounds],
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _save(
    run: Run, key: str, count: int, verdicts: Verdicts, examples: Examples | None
) -> None:
    """Write the verdicts so far, and the first images where there are any to show."""
    if examples is not None and count:
        images = examples._asdict()
        tensors = {name: value[:count].clone() for name, value in images.items()}
        run.write_examples(key, dump_tensors(tensors))
    run.write_verdicts(key, verdicts)
