"""``advnorm perturb``: accuracy under perturbed batch-norm statistics."""

from advnorm.cli.options import DataFolder, Device, Runs, Set


def perturb(
    runs: Runs, set_: Set = None, device: Device = "auto", data: DataFolder = None
) -> None:
    """Measure accuracy of runs when their batch-norm statistics are perturbed.

    --set changes the recipe's 'perturbation' settings, or evaluation.KEY.

    Example: advnorm perturb runs/apart --set radii=[0,0.1] --set evaluation.samples=500
    """
    from advnorm.cli.settings import SAMPLES, evaluation_settings, for_each_run
    from advnorm.runs import perturb_run

    settings = set_ or []
    of_evaluation = [change for change in settings if change.startswith("evaluation.")]
    own = [change for change in settings if change not in of_evaluation]
    changes = [f"perturbation.{change.removeprefix('perturbation.')}" for change in own]
    changes += evaluation_settings(of_evaluation, SAMPLES)
    for_each_run(runs, changes, perturb_run, data=data, device=device)
