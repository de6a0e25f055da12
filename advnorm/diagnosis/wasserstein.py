r"""How far apart are two feature distributions? (sitawarin2021 Eqn. 7, Table 2, Fig. 4).

Features are modelled as independent Gaussians, one per channel, and distances are summed
over channels:

.. math::
    W_2^2 = \sum_c (\mu_1 - \mu_2)^2 + (\sigma_1 - \sigma_2)^2
"""

from collections.abc import Mapping

from torch import Tensor, nn

from advnorm.diagnosis.attacked_domains import attack_images, three_domains
from advnorm.diagnosis.common import QUIET, frozen_eval
from advnorm.diagnosis.features import feature_moments, require_feature_layers
from advnorm.diagnosis.registry import Count, question
from advnorm.norms import Domain, DualNorm, MixtureNorm, Mode, route
from advnorm.norms.moments import Moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


def squared_distance(a: Moments, b: Moments) -> Tensor:
    """Return the squared 2-Wasserstein distance of two independent Gaussians."""
    gap = (a.mean - b.mean).square().sum()
    return gap + (a.var.sqrt() - b.var.sqrt()).square().sum()


def layer_distances(a: Mapping[str, Moments], b: Mapping[str, Moments]) -> dict[str, float]:
    """Return the squared distance at every layer."""
    return {name: float(squared_distance(a[name], b[name])) for name in a}


@question("distances")
def distances(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    steps: Count = 10,
    suite: str = "standard",
    seed: int = 0,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Wasserstein distances between clean, PGD and worst-case features."""
    require_feature_layers(model)  # without one all distances would be 0
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
        moments = {name: feature_moments(model, images) for name, images in domains.items()}
    names = list(moments)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    by_layer = {f"{a} to {b}": layer_distances(moments[a], moments[b]) for a, b in pairs}
    return Diagnosis(
        question="distances",
        source="sitawarin2021 Table 2",
        reading="A model that is falsely robust keeps clean and PGD features far apart, "
        "and a stronger attack finds its way between them.",
        numbers={name: sum(values.values()) for name, values in by_layer.items()},
        settings={"steps": steps, "suite": suite, "n": len(images), "eps": threat.eps},
        panels=(_by_depth("Squared Wasserstein distance by depth", by_layer),),
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

    One number per norm with running statistics, from its input in the model's current mode
    (Fig. 4). For a norm with branches the running statistics are those of the domain.
    """
    layers, result = dict(model.named_modules()), {}
    with route(model, domain=domain):
        for name, moments in feature_moments(model, images).items():
            running = running_moments_of(layers[name], domain)
            if running is not None:
                result[name] = float(squared_distance(moments, running))
    return result


@question("wasserstein")
def wasserstein(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    steps: Count = 10,
    statistics: Mode = "batch",
    progress: Progress = QUIET,
) -> Diagnosis:
    """Wasserstein distance of a batch from the running statistics, by depth.

    Measured for a clean and an adversarial batch. The batch is normalized by its own
    statistics, as in training (Fig. 4); the attack uses the running ones.
    """
    with frozen_eval(model):
        adversarial = attack_images(
            model, images, labels, threat, attack=f"pgd-{steps}", progress=progress
        )
    with frozen_eval(model, statistics):
        distances = {
            "clean": distance_from_running(model, images, domain="clean"),
            "adversarial": distance_from_running(model, adversarial, domain="adversarial"),
        }
    if not distances["clean"]:
        raise ValueError(
            "no norm of the model has running statistics to measure the distance from"
        )
    return Diagnosis(
        question="wasserstein",
        source="sitawarin2021 Fig. 4",
        reading="What is far from the running statistics is normalized otherwise in tests "
        "than in training.",
        numbers={name: sum(values.values()) for name, values in distances.items()},
        settings={"steps": steps, "statistics": statistics, "n": len(images)},
        panels=(_by_depth("Squared distance from the running statistics", distances),),
    )


def _by_depth(title: str, distances: Mapping[str, Mapping[str, float]]) -> Panel:
    return Panel(
        kind="lines",
        title=title,
        x="place, from the input",
        y="squared distance",
        log=True,
        series=tuple(
            Series(name=n, x=tuple(range(1, len(v) + 1)), y=tuple(v.values()))
            for n, v in distances.items()
        ),
    )
