r"""How far apart are two feature distributions (sitawarin2021 Eqn. 7, Table 2, Fig. 4).

Features are taken as independent Gaussians, one a channel, and distances are summed over
channels:

.. math::
    W_2^2 = \sum_c (\mu_1 - \mu_2)^2 + (\sigma_1 - \sigma_2)^2
"""

from collections.abc import Mapping

from torch import Tensor, nn

from advnorm.diagnose.domains import three
from advnorm.diagnose.features import moments
from advnorm.diagnose.registry import QUESTIONS
from advnorm.diagnose.rest import needed, resting
from advnorm.norms import batch_norms
from advnorm.norms.moments import Moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


def squared_distance(one: Moments, other: Moments) -> Tensor:
    """Return the squared 2-Wasserstein distance of two independent Gaussians."""
    gap = (one.mean - other.mean).square().sum()
    return gap + (one.var.sqrt() - other.var.sqrt()).square().sum()


def between(one: Mapping[str, Moments], other: Mapping[str, Moments]) -> dict[str, float]:
    """Return the squared distance at every place."""
    return {name: float(squared_distance(one[name], other[name])) for name in one}


@QUESTIONS.register("distances")
def distances(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: int = 10,
    suite: str = "standard",
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Distances of the clean, PGD and strongest features, summed over layers."""
    threat = needed(threat, "distances")
    with resting(model):
        domains = three(
            model,
            images,
            labels,
            threat,
            steps=steps,
            suite=suite,
            seed=seed,
            progress=progress,
        )
        seen = {name: moments(model, images) for name, images in domains.items()}
    names = list(seen)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    found = {f"{a} to {b}": between(seen[a], seen[b]) for a, b in pairs}
    return Diagnosis(
        question="distances",
        source="sitawarin2021 Table 2",
        reading="A model that is falsely robust keeps clean and PGD features far apart, "
        "and a stronger attack finds its way between them.",
        numbers={name: sum(values.values()) for name, values in found.items()},
        settings={"steps": steps, "suite": suite, "n": len(images), "eps": threat.eps},
        panels=(
            Panel(
                kind="lines",
                title="Squared Wasserstein distance by depth",
                x="place, from the input",
                y="squared distance",
                log=True,
                series=tuple(
                    Series(name=n, x=tuple(range(1, len(v) + 1)), y=tuple(v.values()))
                    for n, v in found.items()
                ),
            ),
        ),
    )


def from_running(model: nn.Module, images: Tensor) -> float:
    """Return the squared distance of a batch's moments from the running statistics.

    Summed over the batch norms that track statistics, as they see the batch in the model's
    present mode (Fig. 4).
    """
    tracked = {n for n, layer in model.named_modules() if layer in set(batch_norms(model))}
    layers = dict(model.named_modules())
    total = 0.0
    for name, seen in moments(model, images).items():
        if name in tracked:
            layer = layers[name]
            assert isinstance(layer, nn.modules.batchnorm._BatchNorm)
            assert layer.running_mean is not None and layer.running_var is not None
            running = Moments(layer.running_mean, layer.running_var, 0)
            total += float(squared_distance(seen, running))
    return total
