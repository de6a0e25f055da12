r"""How far apart are two feature distributions (sitawarin2021 Eqn. 7, Table 2, Fig. 4).

Features are taken as independent Gaussians, one a channel, and distances are summed over
channels:

.. math::
    W_2^2 = \sum_c (\mu_1 - \mu_2)^2 + (\sigma_1 - \sigma_2)^2
"""

from collections.abc import Mapping

from torch import Tensor, nn

from advnorm.diagnosis.attacked_domains import attack_images, three_domains
from advnorm.diagnosis.common import frozen_eval, require_threat
from advnorm.diagnosis.features import feature_moments, require_feature_layers
from advnorm.diagnosis.option_ranges import Count
from advnorm.diagnosis.registry import question
from advnorm.norms import Domain, DualNorm, MixtureNorm, Mode, route
from advnorm.norms.moments import Moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


def squared_distance(one: Moments, other: Moments) -> Tensor:
    """Return the squared 2-Wasserstein distance of two independent Gaussians."""
    gap = (one.mean - other.mean).square().sum()
    return gap + (one.var.sqrt() - other.var.sqrt()).square().sum()


def layer_distances(
    one: Mapping[str, Moments], other: Mapping[str, Moments]
) -> dict[str, float]:
    """Return the squared distance at every place."""
    return {name: float(squared_distance(one[name], other[name])) for name in one}


@question("distances")
def distances(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: Count = 10,
    suite: str = "standard",
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Distances of the clean, PGD and strongest features, summed over layers."""
    threat = require_threat(threat, "distances")
    require_feature_layers(model)  # else all distances would be 0
    with frozen_eval(model):
        domains = three_domains(
            model,
            images,
            labels,
            threat,
            steps=steps,
            suite=suite,
            seed=seed,
            progress=progress,
        )
        seen = {name: feature_moments(model, images) for name, images in domains.items()}
    names = list(seen)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    found = {f"{a} to {b}": layer_distances(seen[a], seen[b]) for a, b in pairs}
    return Diagnosis(
        question="distances",
        source="sitawarin2021 Table 2",
        reading="A model that is falsely robust keeps clean and PGD features far apart, "
        "and a stronger attack finds its way between them.",
        numbers={name: sum(values.values()) for name, values in found.items()},
        settings={"steps": steps, "suite": suite, "n": len(images), "eps": threat.eps},
        panels=(_by_depth("Squared Wasserstein distance by depth", found),),
    )


def running_moments_of(layer: nn.Module, domain: Domain) -> Moments | None:
    """Return the running statistics that a layer keeps for a domain, if it keeps any."""
    if isinstance(layer, MixtureNorm | DualNorm):
        return running_moments_of(
            layer.clean if domain == "clean" else layer.adversarial, domain
        )
    mean, var = getattr(layer, "running_mean", None), getattr(layer, "running_var", None)
    return None if mean is None or var is None else Moments(mean, var, 0)


def distance_from_running(
    model: nn.Module, images: Tensor, *, domain: Domain = "adversarial"
) -> dict[str, float]:
    """Return the squared distance of a batch's moments from the running statistics.

    One number a norm that tracks statistics, as it sees the batch in the model's present
    mode (Fig. 4); of a norm with branches, from the domain's own.
    """
    layers, found = dict(model.named_modules()), {}
    with route(model, domain=domain):
        for name, seen in feature_moments(model, images).items():
            running = running_moments_of(layers[name], domain)
            if running is not None:
                found[name] = float(squared_distance(seen, running))
    return found


@question("wasserstein")
def wasserstein(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    steps: Count = 10,
    statistics: Mode = "batch",
    progress: Progress | None = None,
) -> Diagnosis:
    """Distance of a clean and an adversarial batch from the running statistics, by depth.

    The batch passes with its own statistics, as in training (Fig. 4); the attack searches
    with the running ones.
    """
    threat = require_threat(threat, "wasserstein")
    with frozen_eval(model):
        attacked = attack_images(
            model, images, labels, threat, attack=f"pgd-{steps}", progress=progress
        )
    with frozen_eval(model, statistics):
        found = {
            "clean": distance_from_running(model, images, domain="clean"),
            "adversarial": distance_from_running(model, attacked, domain="adversarial"),
        }
    if not found["clean"]:
        raise ValueError("no norm of the model keeps running statistics")
    return Diagnosis(
        question="wasserstein",
        source="sitawarin2021 Fig. 4",
        reading="What is far from the running statistics is normalized otherwise in tests "
        "than in training.",
        numbers={name: sum(values.values()) for name, values in found.items()},
        settings={"steps": steps, "statistics": statistics, "n": len(images)},
        panels=(_by_depth("Squared distance from the running statistics", found),),
    )


def _by_depth(title: str, found: Mapping[str, Mapping[str, float]]) -> Panel:
    return Panel(
        kind="lines",
        title=title,
        x="place, from the input",
        y="squared distance",
        log=True,
        series=tuple(
            Series(name=n, x=tuple(range(1, len(v) + 1)), y=tuple(v.values()))
            for n, v in found.items()
        ),
    )
