"""How does depth change two mini-batches? PCA of their features (galloway2019)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET, frozen_eval, stratified_halves, to_floats
from advnorm.diagnosis.features import record_features, require_feature_layers
from advnorm.diagnosis.pca import evenly_spaced, place_label
from advnorm.diagnosis.principal_components import PlaneProjection, project_to_plane
from advnorm.diagnosis.registry import Count, question
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


@question("depth_pca")
def depth_pca(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    classes: tuple[int, ...] = (0, 1),
    layers: Count = 3,
    statistics: Mode = "batch",
    progress: Progress = QUIET,
) -> Diagnosis:
    """PCA of two mini-batches at several depths (galloway2019 Fig. 8).

    The images of ``classes`` are split into two mini-batches with equal shares of each
    class. Each is normalized by its own statistics, as in training. The input and
    ``layers`` layers, evenly spaced from the first to the last, are projected to two
    components each.
    """
    selected = torch.isin(labels, torch.tensor(classes, device=labels.device))
    rows = selected.nonzero().squeeze(1)
    if len(rows) < 4:
        raise ValueError(
            f"depth_pca needs at least 4 images of the classes {list(classes)}, not "
            f"{len(rows)}: choose other classes"
        )
    halves = [rows[half] for half in stratified_halves(labels[rows])]
    available = list(require_feature_layers(model))
    names = evenly_spaced(available, layers)
    with frozen_eval(model, statistics):
        features = [_representations(model, images[half], names) for half in halves]
    planes = {
        name: project_to_plane(torch.cat([part[name] for part in features]))
        for name in features[0]
    }
    tags = torch.cat([labels[half] for half in halves]).cpu()
    numbers = {}
    for name, plane in planes.items():
        numbers[f"{name}: neighbours of the same class"] = same_class_neighbours(
            plane.points, tags
        )
        numbers[f"{name}: largest coordinate"] = float(plane.points.abs().max())
    return Diagnosis(
        question="depth_pca",
        source="galloway2019 Fig. 8",
        reading="Classes that are apart at the input and mixed in depth were mixed by the "
        "network; with batch norm the two mini-batches are moved apart from each other.",
        numbers=numbers,
        settings={"n": len(rows), "statistics": statistics},
        panels=tuple(
            _panel(
                "Input" if name == "input" else f"At {place_label(name, available)}",
                plane,
                tags,
                len(halves[0]),
            )
            for name, plane in planes.items()
        ),
    )


def same_class_neighbours(points: Tensor, labels: Tensor) -> float:
    """Return the share of points whose nearest other point has the same label."""
    apart = torch.cdist(points, points).fill_diagonal_(torch.inf)
    same = labels[apart.argmin(1)] == labels
    return float(same.double().mean())


def _representations(
    model: nn.Module, batch: Tensor, names: list[str]
) -> dict[str, Tensor]:
    with torch.no_grad(), record_features(model, names) as features:
        model(batch)
    tensors = {"input": batch, **{name: features[name] for name in names}}
    return {name: tensor.flatten(1).cpu() for name, tensor in tensors.items()}


def _panel(title: str, plane: PlaneProjection, labels: Tensor, first: int) -> Panel:
    clouds: Mapping[str, Tensor] = {
        f"batch {batch}, class {label}": points[labels_of == label]
        for batch, points, labels_of in (
            (1, plane.points[:first], labels[:first]),
            (2, plane.points[first:], labels[first:]),
        )
        for label in sorted(set(labels.tolist()))
    }
    return Panel(
        kind="points",
        title=title,
        x="first component",
        y="second component",
        series=tuple(
            Series(name=key, x=to_floats(cloud[:, 0]), y=to_floats(cloud[:, 1]))
            for key, cloud in clouds.items()
        ),
    )
