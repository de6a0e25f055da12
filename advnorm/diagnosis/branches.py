"""Do clean and adversarial images have different statistics? By channel (xie2020)."""

from collections.abc import Callable
from math import exp, sqrt
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import QUIET, frozen_eval, to_floats
from advnorm.diagnosis.features import feature_layers, feature_moments
from advnorm.diagnosis.registry import Count, question
from advnorm.diagnosis.wasserstein import squared_distance
from advnorm.draws import permutation
from advnorm.norms import Domain, batch_norms, mode, route
from advnorm.norms.moments import Moments
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class RunningStatistics(NamedTuple):
    """The running statistics of a batch norm, and its constant c."""

    moments: Moments
    eps: float

    @property
    def deviation(self) -> Tensor:
        """The divisor of the norm: not zero for a constant channel."""
        return (self.moments.var + self.eps).sqrt()


Branches = dict[str, RunningStatistics]


@question("branches")
def branches(  # noqa: PLR0913 (options of a question)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    where: str = "",
    channels: Count = 20,
    attack: str = "pgd-10",
    batches: Annotated[int, Field(ge=2)] = 2,
    split: Literal["test", "train"] = "test",
    seed: int = 0,
    training_samples: Callable[[int], tuple[Tensor, Tensor]] | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Channel statistics of both branches, batch and running (xie2020 Figs. 5, 6).

    The channels are drawn at random from the norm named ``where``, by default the middle
    one. The mini-batches of Fig. 6 (``batches``, two of them drawn) are equal parts of the
    images, normalized with their own statistics as in training; with ``split=train`` as
    many training images of the run, drawn by its seed. With a threat they are attacked
    first; ``attack`` is named as in an evaluation, and the training attack gives the
    fairest comparison. A model with a single branch shows batch against running only. The
    distance of two batches from each other says how much of their distance from the running
    statistics is chance.
    """
    running = running_moments(model)
    name = where or list(running)[len(running) // 2]
    if name not in running:
        raise ValueError(f"no batch norm {name!r}; there are: {', '.join(running)}")
    if len(images) < 2 * batches:
        raise ValueError(
            f"branches needs at least {2 * batches} images, in {batches} mini-batches, not "
            f"{len(images)}"
        )
    if split == "train":
        if training_samples is None:
            raise ValueError(
                "branches has no training images of a model without a run: leave out split"
            )
        drawn_images, labels = training_samples(len(images))
        images = drawn_images.to(images.dtype)
    domain: Domain = "clean" if threat is None else "adversarial"
    with frozen_eval(model), route(model, domain=domain):
        shown = images
        if threat is not None:
            shown = attack_images(
                model, images, labels, threat, attack=attack, seed=seed, progress=progress
            )
        with mode(model, "batch"):
            size = len(shown) // batches
            parts = torch.split(shown, -(-len(shown) // 2) if batches == 2 else size)
            measured = [feature_moments(model, part) for part in parts[:batches]]
    two = len(running[name]) > 1
    chosen = permutation(len(_own(running[name], domain).moments.mean), seed)
    chosen = chosen[:channels].sort().values
    drawn = {
        f"running, {k}" if two else "running": v.moments for k, v in running[name].items()
    }
    shown_batches = {
        f"batch {i}, {domain}": _unbiased(batch[name])
        for i, batch in enumerate(measured[:2], 1)
    }
    return Diagnosis(
        question="branches",
        source="xie2020 Figs. 5, 6",
        reading="Running lines of two branches that lie apart are two domains (a model "
        "with a single branch has one running line); a batch that lies apart from its "
        "running line is normalized otherwise in training than at test time.",
        numbers=_numbers(running, measured, domain),
        settings={
            "n": len(images),
            "batches": batches,
            "split": split,
            "place": name,
            "domain": domain,
            "channels": channels,
            "attack": "none" if threat is None else attack,
        },
        panels=tuple(
            _panel(title, {**drawn, **shown_batches}, part, chosen.tolist())
            for title, part in (("mean", "mean"), ("variance", "var"))
        ),
    )


def running_moments(model: nn.Module) -> dict[str, Branches]:
    """Return the running statistics by norm and branch: clean and adversarial, or both."""
    by_norm: dict[str, Branches] = {}
    for name, layer in feature_layers(model).items():
        inside = {key.rpartition(".")[2]: bn for key, bn in _tracked(layer).items()}
        if inside:
            by_norm[name] = {key or "both": _running(bn) for key, bn in inside.items()}
    if not by_norm:
        raise ValueError(
            "branches needs batch norms with running statistics, and this model has none"
        )
    return by_norm


def _tracked(layer: nn.Module) -> dict[str, _BatchNorm]:
    inside = set(batch_norms(layer))
    named = {name: bn for name, bn in layer.named_modules() if bn in inside}
    norms = {name: bn for name, bn in named.items() if isinstance(bn, _BatchNorm)}
    return {name: bn for name, bn in norms.items() if bn.running_mean is not None}


def _running(layer: _BatchNorm) -> RunningStatistics:
    assert layer.running_mean is not None and layer.running_var is not None
    moments = Moments(layer.running_mean.clone(), layer.running_var.clone(), 0)
    return RunningStatistics(moments, layer.eps)


class MomentGap(NamedTuple):
    """How far apart two sets of channels are, in deviations and relative to a variance."""

    mean: float
    variance: float


def moment_gap(a: Moments, b: Moments, *, deviation: Tensor) -> MomentGap:
    r"""Return the mean over channels of the differences of mean and variance.

    .. math::
        |\mu_1 - \mu_2| / \sigma, \qquad |\sigma_1^2 - \sigma_2^2| / \sigma^2

    where :math:`\sigma` is the ``deviation``, channel by channel.
    """
    return MomentGap(
        float(((a.mean - b.mean).abs() / deviation).mean()),
        float(((a.var - b.var).abs() / deviation**2).mean()),
    )


def _numbers(
    running: dict[str, Branches], batches: list[dict[str, Moments]], domain: Domain
) -> dict[str, float]:
    both = [branches for branches in running.values() if len(branches) > 1]
    pairs = [(branches["clean"], branches["adversarial"]) for branches in both]
    numbers = _between(pairs) if pairs else {}
    own = {name: _own(branches, domain) for name, branches in running.items()}
    gaps = [
        moment_gap(_unbiased(batch[name]), branch.moments, deviation=branch.deviation)
        for batch in batches
        for name, branch in own.items()
    ]
    numbers["batch from running mean, in deviations"] = _mean([g.mean for g in gaps])
    numbers["batch from running variance, relative"] = _mean([g.variance for g in gaps])
    return numbers | _chance(own, batches)


def _chance(
    own: dict[str, RunningStatistics], batches: list[dict[str, Moments]]
) -> dict[str, float]:
    r"""Return how far a batch would be from running statistics that have converged.

    Two batches of the same size are each :math:`N(0, s^2)` away from what the running
    statistics converge to, so that their difference is :math:`N(0, 2 s^2)`: its mean size,
    in the same units, is :math:`\sqrt 2` times that of a batch alone. Each batch is
    compared with one other.
    """
    pairs = zip(batches[::2], batches[1::2], strict=False)
    gaps = [
        moment_gap(
            _unbiased(first[name]), _unbiased(second[name]), deviation=branch.deviation
        )
        for first, second in pairs
        for name, branch in own.items()
    ]
    mean, variance = (_mean([g[part] for g in gaps]) / sqrt(2) for part in (0, 1))
    return {
        "batch from running mean by chance, in deviations": mean,
        "batch from running variance by chance, relative": variance,
    }


def _between(pairs: list[tuple[RunningStatistics, RunningStatistics]]) -> dict[str, float]:
    """Compare clean and adversarial branches; deviations are the adversarial one's."""
    ratios = [2 * float((b.deviation / a.deviation).log().mean()) for a, b in pairs]
    above = [
        float(((b.moments.mean - a.moments.mean) / b.deviation).mean()) for a, b in pairs
    ]
    larger = [
        float(((b.moments.mean.abs() - a.moments.mean.abs()) / b.deviation).mean())
        for a, b in pairs
    ]
    gaps = [moment_gap(a.moments, b.moments, deviation=b.deviation) for a, b in pairs]
    return {
        "variance, adversarial by clean (geometric mean)": exp(_mean(ratios)),
        "mean, adversarial above clean, in deviations": _mean(above),
        "mean, magnitude of adversarial above clean, in deviations": _mean(larger),
        "means of the branches apart, in deviations": _mean([g.mean for g in gaps]),
        "variances of the branches apart, relative": _mean([g.variance for g in gaps]),
        "squared distance of the branches": sum(
            float(squared_distance(a.moments, b.moments)) for a, b in pairs
        ),
    }


def _own(branches: Branches, domain: Domain) -> RunningStatistics:
    """Return the branch that normalizes a domain, or the only branch."""
    return branches[domain] if domain in branches else next(iter(branches.values()))


def _unbiased(moments: Moments) -> Moments:
    """Return the moments with the unbiased variance, as running statistics use it."""
    return moments._replace(var=moments.var * moments.n / max(moments.n - 1, 1))


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else float("nan")


def _panel(title: str, lines: dict[str, Moments], part: str, chosen: list[int]) -> Panel:
    return Panel(
        kind="lines",
        title=f"Channel {title}",
        x="channel, drawn at random",
        y=title,
        log=part == "var",
        series=tuple(
            Series(
                name=name,
                x=tuple(map(float, range(1, len(chosen) + 1))),
                y=to_floats(getattr(moments, part)[chosen]),
            )
            for name, moments in lines.items()
        ),
    )
