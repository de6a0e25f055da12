"""``advnorm.evaluate(..., statistics="batch")``: results and verdicts on whole batches."""

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from advnorm.evaluation.batch_statistics import BatchRun, BatchStatistics
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.results import Evaluation
from advnorm.evaluation.samples import AnyModel, Samples, as_module, isolated
from advnorm.norms import active_branch
from advnorm.progress import Progress
from advnorm.records import Result, Verdicts
from advnorm.threat import Threat


def refuse_alone(
    radii: bool, certificate: str, precision: str, *, adapts: bool = False
) -> None:
    """Refuse settings of an evaluation that are about each image by itself."""
    if adapts:
        raise ValueError(
            "statistics of the batch and adapt are not combined: leave one of them out"
        )
    if radii or certificate != "none" or precision != "float32":
        raise ValueError(
            "with statistics of the batch there are no radii, no certificates and no "
            "searches in bfloat16, which are of each image by itself: leave them out"
        )


def evaluate_batches(
    model: AnyModel,
    samples: Samples,
    conditions: Sequence[Condition],
    threats: Sequence[Threat],
    statistics: BatchStatistics,
    *,
    seed: int,
    keep: str,
    progress: Progress | None,
) -> Evaluation:
    """Test ``model`` under each condition, batch by batch, in the order of the samples."""
    results: list[Result] = []
    verdicts: dict[str, Verdicts] = {}
    images: dict[str, Tensor] = {}
    tests = [statistics.condition(condition) for condition in conditions]
    with isolated():
        module = as_module(model)
        classes, count = samples.check(module, threats), len(samples.images)
        for condition in tests:
            start, run = perf_counter(), BatchRun(module, condition, statistics, seed)
            batches = samples.batches(module, statistics.batch_size)
            own = run.run(batches, total=count, progress=progress)
            result = Result(
                **condition.result_fields(own, classes),
                data="given",
                weights="given",
                statistics=statistics.statistic,
                branch=active_branch(module),
                seed=seed,
                seconds=perf_counter() - start,
            )
            results.append(result)
            verdicts[result.key] = own
            if keep == "adversarial" and condition.searches:
                images[result.key] = torch.cat(run.images)
    return Evaluation(tuple(results), verdicts, images)
