"""What the numbers of a model card do not say."""

from collections.abc import Iterator

from advnorm.runs.export.measurements import MeasuredRun
from advnorm.runs.export.robustbench import AUTO_ATTACK, written_radius


def limits(measured: MeasuredRun) -> Iterator[str]:
    """Yield a sentence for each limit that the run's own records show."""
    results = measured.results
    attacked = [r for r in results if r.threat and r.kind != "certificate"]
    if measured.mark:
        yield f"The training is not finished {measured.mark}: later weights may differ."
    yield from _radii(measured)
    if attacked:
        yield (
            "Accuracy under an attack is an upper bound of robust accuracy: a stronger "
            "attack may break more samples."
        )
    if not any(r.condition == AUTO_ATTACK for r in results):
        yield f"AutoAttack (condition `{AUTO_ATTACK}`) was not run."
    if not any(r.kind == "certificate" for r in results):
        yield "No certificate was computed: no robustness is proven."
    if not measured.audits:
        yield "No audit was run: gradient masking was not looked for."
    if any(r.branch for r in results):
        yield (
            "The norm has two branches, which answer differently: a number holds for the "
            "branch that it names, and the attacker knew that branch."
        )
    yield "It is one training run: intervals are over test samples, not over seeds."


def _radii(measured: MeasuredRun) -> Iterator[str]:
    """Say in which balls robustness was measured."""
    largest: dict[str, float] = {}
    for result in measured.results:
        if result.threat and result.kind != "statistics":
            norm = result.threat.norm
            largest[norm] = max(largest.get(norm, 0.0), result.threat.eps)
    if not largest:
        yield "Robustness to an adversary was not measured."
        return
    balls = ", ".join(f"{norm} up to {written_radius(e)}" for norm, e in largest.items())
    yield f"Robustness was measured in these balls alone: {balls}."
