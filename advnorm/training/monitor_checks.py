"""Whether a recipe can be watched as it asks to be."""

from advnorm import ranks
from advnorm.recipe import Recipe


def check_monitor(recipe: Recipe) -> None:
    """Refuse what cannot be watched."""
    asked = set(recipe.monitor.questions)
    if recipe.compile and asked & {"moments", "wasserstein"}:
        raise ValueError(
            "monitor.questions: moments and wasserstein look at the features of a step, "
            "which torch.compile hides; leave them out, or set compile=false"
        )
    if "hessian" in asked and ranks.size() > 1 and recipe.norm.options.get("sync"):
        raise ValueError(
            "monitor.questions: hessian is found by the first rank alone, and norms with "
            "sync need all of them; leave one of both out"
        )
    rows = recipe.batch_size // recipe.optimizer.accumulate
    if asked & {"moments", "wasserstein"} and rows < 2 * ranks.size():
        raise ValueError(
            "monitor.questions: moments need at least 2 samples on each rank, in each part "
            f"of a batch: {recipe.batch_size} samples are too few"
        )
