"""The transfer matrix of runs: each is a source and a target (galloway2019, Table 12)."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from advnorm import ranks
from advnorm.data import DataSet
from advnorm.evaluation.engine import check_model
from advnorm.evaluation.transferability import TransferAttack, run_transfer
from advnorm.norms import Domain, active_branch, route
from advnorm.progress import Progress, Quiet
from advnorm.recipe import EvaluationSpec, Recipe
from advnorm.records import Run, TrainingProgress, TransferMatrix
from advnorm.runs.load import load_trained, named_threats
from advnorm.training.build import choose_device
from advnorm.training.components import load_data
from advnorm.training.recipe_checks import check_recipe


def transfer_runs(
    runs: Sequence[Run],
    recipes: Sequence[Recipe],
    *,
    sources: int | None = None,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[TransferMatrix]:
    """Return a matrix for each attack and radius of the first recipe's evaluation.

    ``recipes`` are the runs' own, with their ``evaluation`` changed at will. The first one
    also decides threat, seed and samples. The first ``sources`` runs are attacked, by
    default all of them. Runs on other test data are refused. Under torchrun the ranks share
    the samples, and each returns the whole matrices.
    """
    where = choose_device(device)
    with ranks.process_group(where):
        progress = progress if progress and ranks.is_first() else Quiet()
        return _transfer(runs, recipes, sources, root, where, progress)


def _transfer(
    runs: Sequence[Run],
    recipes: Sequence[Recipe],
    sources: int | None,
    root: Path | None,
    where: torch.device,
    progress: Progress,
) -> list[TransferMatrix]:
    """Load every run's model, attack the sources, and evaluate all models."""
    names = _names(runs)
    models: dict[str, nn.Module] = {}
    weights: dict[str, str] = {}
    training: dict[str, TrainingProgress] = {}
    shared: DataSet | None = None
    for name, run, recipe in zip(names, runs, recipes, strict=True):
        check_recipe(recipe)
        data = load_data(recipe, root=root)
        shared = shared or data
        _require_same_test_data(shared, data, names[0], name)
        warnings: list[str] = []
        models[name], weights[name], completion = load_trained(
            run, recipe, data, weights=recipe.evaluation.weights, warnings=warnings
        )
        models[name].to(where)
        training |= {name: completion} if completion else {}
        for warning in warnings:
            progress.line(warning)
    assert shared is not None
    ranks.require_equal(
        f"{shared.test.digest()} {weights}",
        "the ranks see different runs or data: give all of them the same",
    )
    attacked = {name: models[name] for name in names[:sources]}
    matrices = _matrices(attacked, models, recipes[0], shared, where, progress)
    facts = {"weights": weights, "training": training}
    return [matrix.model_copy(update=facts) for matrix in matrices]


def _matrices(
    attacked: Mapping[str, nn.Module],
    models: Mapping[str, nn.Module],
    recipe: Recipe,
    data: DataSet,
    device: torch.device,
    progress: Progress,
) -> list[TransferMatrix]:
    spec, threats = recipe.evaluation, named_threats(recipe)
    order = torch.arange(min(len(data.test), spec.samples or len(data.test)))
    few = next(data.test.batches(order[:8], batch_size=8, device=device))
    matrices = []
    with ExitStack() as scopes:
        for model in models.values():
            scopes.enter_context(route(model, domain=_domain(spec)))
            check_model(model, few, bounds=recipe.threat.bounds)
        branches = {name: active_branch(model) for name, model in models.items()}
        for name in spec.conditions:
            for threat in threats:
                matrix = run_transfer(
                    attacked,
                    models,
                    lambda: data.test.batches(
                        order,
                        batch_size=spec.batch_size * ranks.size(),
                        device=device,
                    ),
                    TransferAttack(name, threat, spec.step_ratio),
                    total=len(order),
                    data=data.name,
                    seed=recipe.seed,
                    progress=progress,
                )
                named = {key: value for key, value in branches.items() if value}
                matrices.append(matrix.model_copy(update={"branches": named}))
    return matrices


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the folders' names, or their whole paths where two names are the same."""
    if len(runs) < 2:
        raise ValueError("a transfer needs at least two runs: name another one")
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) == len(names):
        return names
    paths = [str(run.path.resolve()) for run in runs]
    if len(set(paths)) < len(paths):
        raise ValueError("a run is named twice: leave one out")
    return paths


def _require_same_test_data(shared: DataSet, data: DataSet, first: str, name: str) -> None:
    if shared.test.digest() != data.test.digest() or shared.classes != data.classes:
        raise ValueError(
            f"{first} and {name} have different test data ({shared.name} and {data.name}): "
            "give runs that share it, with the same data.test, size and classes"
        )


def _domain(spec: EvaluationSpec) -> Domain:
    if spec.branch == "worst":
        raise ValueError("a transfer is of one branch: set branch=adversarial or clean")
    return spec.branch
