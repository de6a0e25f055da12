"""Are clean and adversarial features separated? Shown by PCA (sitawarin2021)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from advnorm.diagnosis.attacked_domains import three_domains
from advnorm.diagnosis.common import QUIET, frozen_eval, to_floats
from advnorm.diagnosis.features import gather_features, require_feature_layers
from advnorm.diagnosis.principal_components import PlaneProjection, project_to_plane
from advnorm.diagnosis.registry import Count, question
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


@question("pca")
def pca(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    steps: Count = 10,
    suite: str = "standard",
    where: str = "",
    seed: int = 0,
    progress: Progress = QUIET,
) -> Diagnosis:
    """PCA of clean, PGD and worst-case adversarial features (sitawarin2021 Fig. 1).

    The inputs of a norm are flattened and projected by one PCA of all three domains.
    ``where`` names the norms, separated by commas; by default the first, the middle and
    the last.
    """
    layers = list(require_feature_layers(model))
    names = where.split(",") if where else evenly_spaced(layers, 3)
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
        planes = {name: _project(model, domains, name) for name in names}
    numbers = {}
    for name, plane in planes.items():
        numbers[f"{name}: variance shown"] = sum(plane.explained)
        for domain, gap in cloud_gaps(plane.points, list(domains), len(images)).items():
            numbers[f"{name}: clean to {domain}"] = gap
    return Diagnosis(
        question="pca",
        source="sitawarin2021 Fig. 1",
        reading="Clouds that lie apart are a sign of false robustness: the network has one "
        "way for clean and one for adversarial images, and a stronger attack falls in "
        "between. Gaps are in units of the clouds' spread.",
        numbers=numbers,
        settings={"steps": steps, "suite": suite, "n": len(images), "eps": threat.eps},
        panels=tuple(
            _panel(place_label(name, layers), plane, list(domains))
            for name, plane in planes.items()
        ),
    )


def evenly_spaced(names: list[str], count: int) -> list[str]:
    """Return ``count`` evenly spaced names, the first and the last among them.

    >>> evenly_spaced(list("abcdefg"), 3), evenly_spaced(["a", "b"], 3)
    (['a', 'd', 'g'], ['a', 'b'])
    >>> evenly_spaced(list("abc"), 1)
    ['c']
    """
    if count < 2:
        return names[-1:]
    if len(names) <= count:
        return names
    return [names[round(i * (len(names) - 1) / (count - 1))] for i in range(count)]


def place_label(name: str, layers: list[str]) -> str:
    """Return the position of a layer, comparable between networks with other names.

    >>> place_label("hidden.4", ["hidden.1", "hidden.4"])
    'place 2 of 2'
    """
    return f"place {layers.index(name) + 1} of {len(layers)}"


def cloud_gaps(points: Tensor, domains: list[str], n: int) -> dict[str, float]:
    r"""Return the distance of each cloud's centre from the first's, in units of spread.

    .. math:: \|m_d - m_0\| / \sqrt{(s_d^2 + s_0^2) / 2}

    where :math:`s^2` is the sum of a cloud's variances.
    """
    clouds = dict(zip(domains, torch.split(points, n), strict=True))
    first = clouds.pop(domains[0])
    return {name: float(_gap(first, cloud)) for name, cloud in clouds.items()}


def _gap(a: Tensor, b: Tensor) -> Tensor:
    spread = (a.var(0, correction=0) + b.var(0, correction=0)).sum() / 2
    tiny = torch.finfo(a.dtype).tiny
    distance: Tensor = torch.linalg.vector_norm(a.mean(0) - b.mean(0))
    return distance / spread.clamp(min=tiny).sqrt()


def _project(model: nn.Module, domains: Mapping[str, Tensor], name: str) -> PlaneProjection:
    rows = [gather_features(model, images, name) for images in domains.values()]
    return project_to_plane(torch.cat(rows))


def _panel(where: str, plane: PlaneProjection, domains: list[str]) -> Panel:
    clouds = torch.split(plane.points, len(plane.points) // len(domains))
    first, second = plane.explained
    return Panel(
        kind="points",
        title=f"Features at {where}",
        x=f"first component ({first:.0%} of the variance)",
        y=f"second component ({second:.0%})",
        series=tuple(
            Series(name=domain, x=to_floats(cloud[:, 0]), y=to_floats(cloud[:, 1]))
            for domain, cloud in zip(domains, clouds, strict=True)
        ),
    )
