"""Evaluates or certifies a run: its weights and data under its recipe's conditions."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from advnorm import data as sets
from advnorm import ranks
from advnorm.bounds import METHODS
from advnorm.evaluation import (
    Adaptation,
    Condition,
    certificate_condition,
    parse_conditions,
)
from advnorm.evaluation.adaptation import bind
from advnorm.evaluation.adaptive_stages import adapt_conditions
from advnorm.evaluation.certificates import refuse_broken_certificates
from advnorm.evaluation.condition_names import RADII
from advnorm.evaluation.conditions import certify_first, search_in
from advnorm.evaluation.engine import search_dtype
from advnorm.evaluation.radii import tighten
from advnorm.norms import Domain
from advnorm.progress import Progress
from advnorm.recipe import Recipe, RecipeError
from advnorm.records import Result, Run
from advnorm.runs.batch_statistics import evaluate_on_batches, statistics_of
from advnorm.runs.condition import branches_of, evaluate_condition, worst_branch
from advnorm.runs.load import LoadedRun, check_fit, first_samples, open_run
from advnorm.training.components import evaluation_threats, load_data

_FEW = 64
"""Samples with which an adaptive search is checked."""
EvaluateCondition = Callable[[Run, LoadedRun, Condition, Domain | None, Progress], Result]


def evaluate_run(
    run: Run,
    recipe: Recipe,
    *,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Run the recipe's evaluation on the run's weights; cached results are not run again.

    ``recipe`` is the run's own, with its ``evaluation`` changed at will. Under torchrun the
    ranks share the samples; verdicts are those of one process. With statistics of the test
    batch, which need whole batches, several ranks are refused.
    """
    _check(recipe)
    statistics = statistics_of(recipe)
    whole = f"evaluation.statistics={recipe.evaluation.statistics} needs whole batches"
    with open_run(
        run,
        recipe,
        root=root,
        device=device,
        progress=progress,
        single_process=whole if statistics else None,
    ) as loaded:
        conditions = evaluation_conditions(recipe, loaded.data.shape)
        if statistics is None:
            return _run_conditions(run, loaded, conditions, root, loaded.progress)
        conditions = [statistics.condition(condition) for condition in conditions]
        test = partial(evaluate_on_batches, statistics=statistics)
        return _run_conditions(run, loaded, conditions, root, loaded.progress, test)


def certify_run(
    run: Run,
    recipe: Recipe,
    *,
    method: str = "crown",
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Result]:
    """Certify the run's weights by ``method`` at each radius of the recipe's evaluation.

    The results stand beside those of :func:`evaluate_run`, and are cached like them.
    """
    METHODS[method]  # an unknown name is refused
    _check(recipe)
    with open_run(run, recipe, root=root, device=device, progress=progress) as loaded:
        conditions = [
            certificate_condition(method, threat) for threat in evaluation_threats(recipe)
        ]
        return _run_conditions(run, loaded, conditions, root, loaded.progress)


def _check(recipe: Recipe) -> None:
    """Refuse all that is wrong with an evaluation at once, before anything is loaded."""
    bounds, problems = recipe.threat.bounds, []
    for look_up in (
        lambda: sets.DATA[recipe.data.name.partition(":")[0]],
        lambda: parse_conditions(recipe.evaluation.conditions, [], bounds),
        lambda: evaluation_threats(recipe),
        lambda: statistics_of(recipe),
    ):
        try:
            look_up()
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("\n".join(problems))


def evaluation_conditions(recipe: Recipe, shape: Sequence[int]) -> list[Condition]:
    """Return the conditions that the recipe's evaluation names."""
    spec = recipe.evaluation
    if not spec.conditions:
        raise ValueError(
            "evaluation.conditions is empty: name at least one, such as pgd-40"
        )
    names = spec.conditions
    if spec.radii and RADII not in names:
        names = (*names, RADII)
    conditions = parse_conditions(
        names,
        evaluation_threats(recipe),
        recipe.threat.bounds,
        step_ratio=spec.step_ratio,
        shape=shape,
    )
    return search_in(certify_first(conditions, spec.certificate), spec.search_precision)


def _run_conditions(
    run: Run,
    loaded: LoadedRun,
    conditions: Sequence[Condition],
    root: Path | None,
    progress: Progress,
    test: EvaluateCondition = evaluate_condition,
) -> list[Result]:
    """Run the conditions on each data set and branch; compare them with certificates."""
    results = []
    for tested in _on_each_set(loaded, root):
        branches = branches_of(tested)
        for condition in _adaptive(conditions, tested):
            each = []
            for branch in branches:
                each.append(test(run, tested, condition, branch, progress))
            if len(each) > 1:
                results.append(worst_branch(run, condition, each, progress))
            else:
                results += each
    refuse_broken_certificates((r, run.verdicts(r.key)) for r in run.results())
    return [_with_tight_radii(run, r, conditions, progress) for r in results]


def _adaptive(conditions: Sequence[Condition], loaded: LoadedRun) -> list[Condition]:
    """Return the conditions with the adaptive search that the recipe names, if any."""
    spec, test = loaded.recipe.evaluation, loaded.data.test
    adaptation = Adaptation(**dict(spec.adapt))
    if not adaptation:
        return list(conditions)
    count = min(len(test), spec.samples or len(test))
    batch = first_samples(loaded.data, min(count, _FEW), loaded.device)
    bound = bind(adaptation, loaded.model, batch.images.to(search_dtype(loaded.model)))
    return adapt_conditions(conditions, bound)


def _with_tight_radii(
    run: Run, result: Result, conditions: Sequence[Condition], progress: Progress
) -> Result:
    """Count in the brackets what other conditions broke, and write their summary."""
    verdicts = run.verdicts(result.key).first(result.accuracy.n)
    if result.condition != RADII or not verdicts.radii:
        return result
    others = [(r, run.verdicts(r.key)) for r in run.results()]
    tight = tighten(verdicts, result, others)
    norm = result.threat and result.threat.norm
    (condition,) = (
        c for c in conditions if c.name == RADII and c.threat and c.threat.name == norm
    )
    result = result.model_copy(update={"radii": condition.summary(tight)})
    ranks.run_on_first(partial(run.write_result, result))
    progress.line(f"{result.key}: {result.radii}")
    return result


def _on_each_set(loaded: LoadedRun, root: Path | None) -> Iterator[LoadedRun]:
    """Yield the run on its own data, or on each set that the evaluation names."""
    recipe = loaded.recipe
    if recipe.evaluation.data is None:
        yield loaded
        return
    for name in sets.expand_name(recipe.evaluation.data):
        data = _load_other(recipe, name, loaded.data, root)
        check_fit(recipe, loaded.model, data, loaded.device)
        yield loaded._replace(data=data)


def _load_other(
    recipe: Recipe, name: str, data: sets.DataSet, root: Path | None
) -> sets.DataSet:
    """Read a data set that the evaluation names instead of the run's own."""
    spec = recipe.data.model_copy(update={"name": name})
    other = load_data(recipe.model_copy(update={"data": spec}), root=root)
    if other.shape != data.shape or len(other.classes) != len(data.classes):
        raise ValueError(
            f"{other.name} has images of shape {other.shape} and {len(other.classes)} "
            f"classes; the model was made for {data.shape} and {len(data.classes)}"
        )
    return other
