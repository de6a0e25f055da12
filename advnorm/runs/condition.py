"""One cell of a run's evaluation, judged from where it stopped."""

import json
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from time import perf_counter

import torch
from safetensors.torch import save as dump_tensors

from advnorm import ranks
from advnorm.evaluation import Cell, judge
from advnorm.evaluation.engine import Judgement
from advnorm.norms import Domain, MixtureNorm, route
from advnorm.norms.route import DOMAINS
from advnorm.progress import Progress
from advnorm.records import Result, Run, Verdicts, mark_of, result_key, with_flags
from advnorm.runs.load import LoadedRun


def judged(run: Run, subject: LoadedRun, cell: Cell, progress: Progress) -> Result:
    """Judge one cell on the branch that the recipe names, where the model has branches."""
    branch = subject.recipe.evaluation.branch
    if not any(isinstance(layer, MixtureNorm) for layer in subject.model.modules()):
        if branch == "clean":
            raise ValueError(
                "evaluation.branch=clean, but the model has no mixture norm, and so no "
                "branches: leave it out"
            )
        return _branch(run, subject, cell, None, progress)
    if branch != "worst":
        return _branch(run, subject, cell, branch, progress)
    both = [_branch(run, subject, cell, domain, progress) for domain in DOMAINS]
    verdicts = worst([run.verdicts(r.key).first(r.accuracy.n) for r in both])
    result = both[0].model_copy(
        update={
            "branch": "worst",
            "accuracy": verdicts.accuracy(),
            "curve": verdicts.accuracies(cell.counts),
            "seconds": sum(result.seconds for result in both),
            "flags": tuple(dict.fromkeys(flag for r in both for flag in r.flags)),
        }
    )
    ranks.run_on_first(partial(run.write_verdicts, result.key, verdicts))
    ranks.run_on_first(partial(run.write_result, result))
    progress.line(f"{result.key}: {result.accuracy}{mark_of(result.training)}")
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


def _branch(
    run: Run, subject: LoadedRun, cell: Cell, branch: Domain | None, progress: Progress
) -> Result:
    """Judge one cell on one branch, from where it stopped if the settings are the same.

    The result is of the samples that are asked for. Verdicts on more of them stay, so that
    a look at a few costs nothing of what is known.
    """
    spec, test = subject.recipe.evaluation, subject.data.test
    count = min(len(test), spec.samples or len(test))
    other = subject.data.name if spec.data is not None else None
    key = result_key(cell.name, cell.threat_record, branch, other)
    fingerprint = _fingerprint(subject, cell, branch)
    known, done = run.result(key), run.verdicts(key)
    seen = f"{known.fingerprint if known else None} {done.fingerprint} {len(done.samples)}"
    ranks.require_same_files(seen, run.path)
    same = known is not None and known.fingerprint == fingerprint
    whole = done.fingerprint == fingerprint and len(done.samples) >= count
    if known and same and whole and known.accuracy.n == count:
        return kept(run, known, subject)
    if known and not same and known.accuracy.n > count:
        progress.line(f"{key}: replaces {known.accuracy}, of other settings or weights")
    if done.fingerprint != fingerprint:
        done = Verdicts(fingerprint=fingerprint)
    start, before = perf_counter(), known.seconds if known and same else 0.0
    done = _rest(run, subject, cell, branch, key, done, count, progress)
    asked = done.first(count)
    result = Result(
        attack=cell.name,
        settings=cell.settings,
        threat=cell.threat_record,
        certificate=cell.proves,
        accuracy=asked.accuracy(),
        curve=asked.accuracies(cell.counts),
        data=subject.data.name,
        other=other is not None,
        weights=subject.weights,
        training=subject.training,
        branch=branch,
        seed=subject.recipe.seed,
        seconds=before + perf_counter() - start,
        flags=subject.flags if cell.searches else (),
        notes=cell.notes(subject.classes),
        fingerprint=fingerprint,
    )
    result = with_flags(result, run.audits())
    ranks.run_on_first(partial(run.write_result, result))
    of = len(done.samples)
    more = f"; verdicts on all {of} stay" if of > count else ""
    progress.line(f"{result.key}: {result.accuracy}{mark_of(result.training)}{more}")
    for text in (*result.flags, *result.notes):
        progress.line(f"  ! {text}")
    return result


def kept(run: Run, known: Result, subject: LoadedRun) -> Result:
    """Return a result of the same weights and settings; the run may have gone on since.

    The best weights of an unfinished run may turn out to be those of its end.
    """
    if known.training == subject.training:
        return known
    result = known.model_copy(update={"training": subject.training})
    ranks.run_on_first(partial(run.write_result, result))
    return result


def _rest(
    run: Run,
    subject: LoadedRun,
    cell: Cell,
    branch: Domain | None,
    key: str,
    done: Verdicts,
    count: int,
    progress: Progress,
) -> Verdicts:
    """Judge those of the first ``count`` samples that are not yet; return all verdicts."""
    spec, rest = subject.recipe.evaluation, torch.arange(count)[len(done.samples) :]
    if not len(rest):
        return done
    batches = subject.data.test.batches(
        rest, batch_size=spec.batch_size * ranks.size(), device=subject.device
    )
    with route(subject.model, domain=branch or "adversarial"):
        return judge(
            subject.model,
            batches,
            cell,
            total=count,
            seed=subject.recipe.seed,
            done=done,
            save=lambda found: _save(run, key, found, spec.examples if cell.threat else 0),
            progress=progress,
        )


def _fingerprint(subject: LoadedRun, cell: Cell, branch: Domain | None) -> str:
    """Hash everything that decides the verdict of a cell on a sample."""
    recipe = subject.recipe
    facts = {
        "weights": subject.weights,
        "data": [subject.data.name, subject.data.digest()],
        "seed": recipe.seed,
        "branch": branch,
        "cell": [cell.key, cell.settings, repr(cell.threat), recipe.threat.bounds],
    }
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _save(run: Run, key: str, found: Judgement, count: int) -> None:
    """Write the verdicts so far, and the first images where there are any to show."""
    if found.examples is not None and count:
        shown = found.examples._asdict()
        tensors = {name: value[:count].clone() for name, value in shown.items()}
        run.write_examples(key, dump_tensors(tensors))
    run.write_verdicts(key, found.verdicts)
