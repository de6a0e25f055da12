"""``advnorm perturb``: accuracy under perturbed batch-norm statistics."""

from advnorm.cli.options import DataFolder, Device, KeepIn, Runs, Set


def perturb(
    runs: Runs,
    set_: Set = None,
    out: KeepIn = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> None:
    """Measure accuracy of runs when their batch-norm statistics are perturbed.

    --set changes the recipe's 'perturbation' settings, or evaluation.KEY.

    Example: advnorm perturb runs/apart --set radii=[0,0.1] --set evaluation.samples=500
    """
    from advnorm.cli.settings import SAMPLES, evaluation_settings
    from advnorm.cli.targets import (
        TargetOptions,
        for_each_target,
        open_targets,
        split_settings,
    )
    from advnorm.runs import perturb_run

    of_recipe, settings = split_settings(set_)
    of_evaluation, own = split_settings(settings, ("evaluation.",))
    changes = [f"perturbation.{change.removeprefix('perturbation.')}" for change in own]
    changes += evaluation_settings(of_evaluation, SAMPLES)
    options = TargetOptions(of_recipe, out, data, device)
    with open_targets(runs, changes, options) as targets:
        for_each_target(targets, perturb_run, options)
