r"""How far are tests from training, and is it lag or a systematic gap? (sitawarin2021).

Training normalizes by the moments of a batch, tests by running statistics r. At fixed
weights the running statistics of repeated steps settle at :math:`\bar r`: the moments of
the mixed batch where both domains are concatenated; :math:`(0.9 m_{cl} + m_{adv}) / 1.9`
where the clean batch updates them before the adversarial one, at momentum 0.1. So the
distance of a domain's moments from the running statistics has two parts, the lag
:math:`W_2^2(r, \bar r)`, because weights move, and the systematic part
:math:`W_2^2(m_d, \bar r)`. The moments of one small batch add noise, which the mean over
many batches does not have.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import QUIET, frozen_eval
from advnorm.diagnosis.features import record_features, require_feature_layers
from advnorm.diagnosis.registry import Count, question
from advnorm.diagnosis.wasserstein import running_moments_of, squared_distance
from advnorm.norms.moments import Moments, measure_moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

_KEPT = 0.9  # of the running statistics by one update, at PyTorch's default momentum


@question("statistics_gap")
def statistics_gap(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    attack: str = "pgd-10",
    batching: Literal["sequential", "concatenated"] = "concatenated",
    batch_size: Count = 64,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Lag and systematic part of the running statistics (sitawarin2021 Fig. 4).

    The images are split into batches of ``batch_size``, whose moments are averaged; those
    that do not fill a batch are left out. Norms of feature maps alone are measured: after a
    fully connected layer the moments of a small batch are mostly noise.
    """
    count = len(images) // batch_size
    if not count:
        raise ValueError(
            f"statistics_gap needs a batch of {batch_size} images, not {len(images)}: take "
            "more samples, or set a smaller batch_size"
        )
    used, targets = images[: count * batch_size], labels[: count * batch_size]
    with frozen_eval(model):
        adversarial = attack_images(
            model, used, targets, threat, attack=attack, progress=progress
        )
    names = list(require_feature_layers(model))
    means: dict[str, dict[str, Moments]] = {}
    with frozen_eval(model, "batch"), torch.no_grad():
        batches = [
            _batch_moments(model, pair, names, mixed=batching == "concatenated")
            for pair in zip(
                torch.split(used, batch_size),
                torch.split(adversarial, batch_size),
                strict=True,
            )
        ]
    for name in batches[0]:
        means[name] = {d: _average([b[name][d] for b in batches]) for d in batches[0][name]}
    layers = dict(model.named_modules())
    numbers = {"lag": 0.0, "clean, systematic": 0.0, "adversarial, systematic": 0.0}
    for name, moments in means.items():
        running = running_moments_of(layers[name], "clean")
        if running is None:
            continue
        settled = moments.get("mixed") or _alternated(moments)
        numbers["lag"] += float(squared_distance(running, settled))
        for domain in ("clean", "adversarial"):
            gap = squared_distance(moments[domain], settled)
            numbers[f"{domain}, systematic"] += float(gap)
    return Diagnosis(
        question="statistics_gap",
        source="sitawarin2021 Fig. 4",
        reading="The lag vanishes when weights come to rest; the systematic part does not.",
        numbers=numbers,
        settings={"attack": attack, "batching": batching, "batches": count},
        panels=(_panel(numbers),),
    )


def _batch_moments(
    model: nn.Module, pair: Sequence[Tensor], names: list[str], *, mixed: bool
) -> dict[str, dict[str, Moments]]:
    """Return the moments of each domain's feature maps, normalized as in training."""
    rows = len(pair[0])
    passes = [torch.cat(list(pair))] if mixed else pair
    maps: dict[str, list[Tensor]] = {}
    for images in passes:
        with record_features(model, names) as features:
            model(images)
        for name in names:
            if features[name].dim() > 2:
                maps.setdefault(name, []).append(features[name])
    moments = {}
    for name, parts in maps.items():
        whole = torch.cat(parts)
        domains = {"clean": whole[:rows], "adversarial": whole[rows:]}
        domains |= {"mixed": whole} if mixed else {}
        moments[name] = {d: measure_moments(each) for d, each in domains.items()}
    return moments


def _average(moments: Sequence[Moments]) -> Moments:
    mean = torch.stack([each.mean for each in moments]).mean(0)
    return Moments(mean, torch.stack([m.var for m in moments]).mean(0), moments[0].n)


def _alternated(moments: Mapping[str, Moments]) -> Moments:
    """Return where running statistics settle that both domains update in turn."""
    clean, adversarial = moments["clean"], moments["adversarial"]
    mean, var = (
        (_KEPT * a + b) / (1 + _KEPT)
        for a, b in ((clean.mean, adversarial.mean), (clean.var, adversarial.var))
    )
    return Moments(mean, var, clean.n)


def _panel(numbers: Mapping[str, float]) -> Panel:
    return Panel(
        kind="bars",
        title="Running statistics against those of training",
        x="part",
        names=tuple(numbers),
        y="squared distance",
        series=(
            Series(
                name="distance",
                x=tuple(map(float, range(len(numbers)))),
                y=tuple(numbers.values()),
            ),
        ),
    )
