"""A run folder of a model that was not trained here: its recipe and weights, no training.

Everything that works on a run then works on a model of the user's own.
"""

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from advnorm import ranks
from advnorm.data import DataSet
from advnorm.norms import count_norms
from advnorm.recipe import NormSpec, Recipe, differences, from_yaml, to_yaml
from advnorm.records import Environment, Run
from advnorm.runs.load import check_fit
from advnorm.training import checkpoints
from advnorm.training.build import choose_device
from advnorm.training.components import assemble_model, build_model, load_data
from advnorm.training.user_model_checks import with_digest


def make_run(
    recipe: Recipe,
    out: Path,
    *,
    root: Path | None = None,
    device: str = "auto",
    norm_is_named: bool = False,
) -> Run:
    """Write the recipe's model, as it is, into the run folder ``out``; return the run.

    ``norm.name`` becomes what the model has, unless it is built from the recipe's norm. A
    model without that norm is refused if the user has named it (``norm_is_named``). A
    folder that this function wrote before is used again if the model is the same. Nothing
    is written for a model that does not fit its data.
    """
    recipe = with_digest(recipe)
    data = load_data(recipe, root=root)
    recipe, model = _build(recipe, data, norm_is_named)
    check_fit(recipe, model, data, torch.device("cpu"))
    weights = {f"model/{key}": value for key, value in model.state_dict().items()}
    if (out / "recipe.yaml").is_file():
        run = Run.open(out)
        _check_same(run, recipe, weights)
        return run
    environment = Environment.here(
        device=str(choose_device(device)),
        threads=torch.get_num_threads(),
        ranks=ranks.size(),
        launch=ranks.launch_id(),
    )
    run = Run.create(out, to_yaml(recipe), environment)
    checkpoints.save(run.checkpoints, "best", 0, weights, {"step": 0})
    return run


def _build(recipe: Recipe, data: DataSet, checked: bool) -> tuple[Recipe, nn.Module]:
    """Return the model, and the recipe with the norm that it has."""
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        if recipe.norm.apply == "build" and not checked:
            model, norm = assemble_model(recipe, data)
            if not norm.built:
                return _described(recipe, model), model
            torch.manual_seed(recipe.seed)
        return recipe, build_model(recipe, data)


def _described(recipe: Recipe, model: nn.Module) -> Recipe:
    """Return the recipe with the norm and the precision that a model has."""
    common = Counter(count_norms(model)).most_common(1)
    norm = NormSpec(name=common[0][0] if common else "none", options={})
    wide = any(value.dtype == torch.float64 for value in model.parameters())
    return recipe.replace(norm=norm, precision="float64" if wide else "float32")


def _check_same(run: Run, recipe: Recipe, weights: dict[str, Tensor]) -> None:
    """Refuse a folder of another model: its results would be mixed with this one's."""
    before = from_yaml(run.recipe_text())
    measured = {key: getattr(recipe, key) for key in ("evaluation", "perturbation")}
    changed = differences(before.model_copy(update=measured), recipe)
    stored = checkpoints.load(run.checkpoints, "best", warnings=[])
    same = stored is not None and stored.tensors.keys() == weights.keys()
    if changed or not same or stored is None or run.epochs():
        raise FileExistsError(
            f"{run.path} holds another run ({'; '.join(changed) or 'other layers'}): "
            "choose another --out"
        )
    if not all(torch.equal(stored.tensors[key], weights[key]) for key in weights):
        raise FileExistsError(
            f"{run.path} holds other weights of {recipe.model.name}: choose another --out"
        )
