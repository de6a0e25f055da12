"""Evaluates a run with statistics of the test batch; finished results are cached."""

from functools import partial
from time import perf_counter

import torch

from advnorm import ranks
from advnorm.evaluation import Condition
from advnorm.evaluation.batch_api import refuse_alone
from advnorm.evaluation.batch_statistics import (
    BatchRun,
    BatchStatistics,
    batch_statistics,
)
from advnorm.norms import Domain, route
from advnorm.progress import Progress
from advnorm.recipe import AdaptSpec, Recipe
from advnorm.records import Result, Run, result_key, with_flags
from advnorm.runs.condition import fingerprint_of, report, result_of, with_training
from advnorm.runs.load import LoadedRun


def statistics_of(recipe: Recipe) -> BatchStatistics | None:
    """Return the recipe's statistics of test batches; nothing where they are running."""
    spec = recipe.evaluation
    if spec.statistics == "running" and not spec.malicious and spec.attacked == 1:
        return None
    refuse_alone(
        spec.radii,
        spec.certificate,
        spec.search_precision,
        adapts=spec.adapt != AdaptSpec(),
    )
    return batch_statistics(spec.statistics, spec.batch_size, spec.malicious, spec.attacked)


def evaluate_on_batches(
    run: Run,
    loaded: LoadedRun,
    condition: Condition,
    branch: Domain | None,
    progress: Progress,
    *,
    statistics: BatchStatistics,
) -> Result:
    """Evaluate one condition, batch by batch; a result of the same settings is kept."""
    spec, test = loaded.recipe.evaluation, loaded.data.test
    count = min(len(test), spec.samples or len(test))
    statistics.check(loaded.model, count)
    other = loaded.data.name if spec.data is not None else None
    key = result_key(condition.name, condition.threat_record, branch, other)
    fingerprint = f"{fingerprint_of(loaded, condition, branch)}-{count}"
    cached = run.result(key)
    if cached and cached.fingerprint == fingerprint:
        return with_training(run, cached, loaded)
    start = perf_counter()
    batches = test.batches(
        torch.arange(count), batch_size=statistics.batch_size, device=loaded.device
    )
    with route(loaded.model, domain=branch or "adversarial"):
        tested = BatchRun(loaded.model, condition, statistics, loaded.recipe.seed)
        verdicts = tested.run(batches, total=count, progress=progress)
    verdicts = verdicts.model_copy(update={"fingerprint": fingerprint})
    result = result_of(loaded, condition, branch, verdicts, perf_counter() - start)
    result = result.model_copy(update={"statistics": statistics.statistic})
    result = with_flags(result, run.audits())
    ranks.run_on_first(partial(run.write_verdicts, key, verdicts))
    ranks.run_on_first(partial(run.write_result, result))
    report(result, result.accuracy.n, progress)
    return result
