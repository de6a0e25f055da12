"""Adversarial examples of one model, tested on others (galloway2019, Table 12, E.2)."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from advnorm.data import Batch
from advnorm.draws import Draws
from advnorm.evaluation.conditions import attack_search, merged_settings
from advnorm.evaluation.engine import logits_of, search_dtype
from advnorm.evaluation.inputs import one_threat
from advnorm.evaluation.samples import as_module, as_samples, isolated
from advnorm.evaluation.sharding import failing_together, gather_rows, own_rows
from advnorm.evaluation.stages import CLEAN, AttackSearch, StageInput, predict
from advnorm.labelled_data import Array, LabelledData
from advnorm.model_state import eval_mode, frozen_parameters
from advnorm.progress import Progress, Quiet
from advnorm.records import Accuracy, ThreatRecord, TransferMatrix
from advnorm.threat import Threat

Batches = Callable[[], Iterable[Batch]]


class TransferAttack(NamedTuple):
    """An attack by its name, and what it may change."""

    name: str
    threat: Threat
    step_ratio: float = 2.5


def transfer(  # noqa: PLR0913 (one flat call, for newcomers)
    sources: Mapping[str, nn.Module],
    targets: Mapping[str, nn.Module],
    images: Array | LabelledData,
    labels: Array | None,
    threat: Threat,
    *,
    attack: str = "pgd-40",
    step_ratio: float = 2.5,
    batch_size: int = 250,
    seed: int = 0,
    progress: Progress | None = None,
) -> TransferMatrix:
    """Attack each source, and return the accuracy of each target on the resulting images.

    >>> from advnorm import Linf
    >>> make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> models = {"a": make(), "b": make()}
    >>> images, labels = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.long)
    >>> matrix = transfer(models, models, images, labels, Linf(0.1), attack="bim-10")
    >>> len(matrix.accuracies), matrix.accuracies[0][1].n
    (2, 8)

    Args:
        sources: Models that are attacked, white-box, by their names.
        targets: Models that judge; one under the same name as a source is that source, and
            its entry is the accuracy of the white-box evaluation.
        images: Floats in the threat's bounds, shape ``(n, ...)``; or a Dataset or
            DataLoader of images and labels.
        labels: Class indices, shape ``(n,)``; ``None`` with a Dataset or DataLoader.
        threat: ``Linf(8 / 255)`` or ``L2(0.5)``, with the bounds of a valid image.
        attack: The name of an attack or a suite.
        step_ratio: Step size = ratio x eps / steps.
        batch_size: Samples attacked together; no verdict depends on it.
        seed: Decides every random start.
        progress: Where to report; by default nowhere.
    """
    threat = one_threat(threat)
    samples = as_samples(images, labels, threat.bounds)
    with isolated():
        models = {**sources, **targets}
        own = {name: as_module(model) for name, model in models.items()}
        _refuse_namesakes(sources, targets)
        for model in own.values():
            samples.check(model, [threat])
        widest = max(own.values(), key=lambda model: search_dtype(model).itemsize)
        return run_transfer(
            {name: own[name] for name in sources},
            {name: own[name] for name in targets},
            lambda: samples.batches(widest, batch_size),
            TransferAttack(attack, threat, step_ratio),
            total=len(samples.images),
            seed=seed,
            progress=progress,
        )


def run_transfer(
    sources: Mapping[str, nn.Module],
    targets: Mapping[str, nn.Module],
    batches: Batches,
    attack: TransferAttack,
    *,
    total: int,
    data: str = "given",
    seed: int = 0,
    progress: Progress | None = None,
) -> TransferMatrix:
    """Test every target on every source's adversarial examples, over all samples.

    As in Table 12 of galloway2019 all samples count, also those that the target gets wrong
    when they are clean, and all are attacked, also those that the source gets wrong.
    Several ranks share each batch, and all return the whole matrix.
    """
    _refuse_namesakes(sources, targets)
    search = attack_search(attack.name, attack.threat, step_ratio=attack.step_ratio)
    progress, start, models = progress or Quiet(), perf_counter(), {**sources, **targets}
    right = {(source, target): 0 for source in sources for target in targets}
    clean, n = dict.fromkeys(targets, 0), 0
    with ExitStack() as scopes:
        for model in models.values():
            scopes.enter_context(eval_mode(model))
            scopes.enter_context(frozen_parameters(model))
        for batch in batches():
            n += len(batch.samples)
            for name, model in targets.items():
                clean[name] += int(_right(model, batch.images, batch.labels).sum())
            for name in sources:
                robust = _attack_source(sources, name, targets, search, batch, seed)
                for target in targets:
                    right[name, target] += int(robust[target].sum())
            progress.update(n, total, f"transfer of {attack.name}")
    threat = attack.threat
    return TransferMatrix(
        attack=attack.name,
        settings=merged_settings(search.attacks),
        threat=ThreatRecord(norm=threat.name, eps=threat.eps, bounds=threat.bounds),
        data=data,
        seed=seed,
        sources=tuple(sources),
        targets=tuple(targets),
        clean=tuple(Accuracy(correct=clean[name], n=n) for name in targets),
        accuracies=tuple(
            tuple(Accuracy(correct=right[source, target], n=n) for target in targets)
            for source in sources
        ),
        seconds=perf_counter() - start,
    )


def _attack_source(
    sources: Mapping[str, nn.Module],
    source: str,
    targets: Mapping[str, nn.Module],
    search: AttackSearch,
    batch: Batch,
    seed: int,
) -> dict[str, Tensor]:
    """Tell which of a source's adversarial examples each target classifies correctly."""
    model, count = sources[source], len(batch.samples)
    rows = own_rows(count)
    with failing_together():
        clean = _moved(batch.images[rows], model)
        labels = batch.labels[rows].to(clean.device)
        draws = Draws.of(seed, batch.samples[rows].to(clean.device))
        part = StageInput(model, logits_of(model), clean, labels, draws)
        verdicts = search.run(part, CLEAN.run(part))
        images = _attack_misclassified(part, search, verdicts.images)
        robust = {
            target: verdicts.robust if target == source else _right(other, images, labels)
            for target, other in targets.items()
        }
    return {target: gather_rows(rows, count) for target, rows in robust.items()}


def _attack_misclassified(
    batch: StageInput, search: AttackSearch, images: Tensor
) -> Tensor:
    """Attack also what the source misclassifies; return images inside the threat."""
    logits_fn, clean, labels = batch.logits_fn, batch.clean, batch.labels
    rows = (predict(logits_fn, clean, labels) != labels).nonzero().squeeze(1)
    images = images.clone()
    if len(rows):
        first = search.attacks[0]
        draws = batch.draws[rows].stream(first.random_stream, 0)
        images[rows] = first.attack(logits_fn, clean[rows], labels[rows], draws=draws)
    inside = search.threat.contains(images, clean)
    return torch.where(inside.view(-1, *[1] * (images.dim() - 1)), images, clean)


def _right(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Tell which images a model classifies correctly, on the labels' device."""
    images = _moved(images, model)
    own = labels.to(images.device)
    return (predict(logits_of(model), images, own) == own).to(labels.device)


def _moved(images: Tensor, model: nn.Module) -> Tensor:
    device = next((p.device for p in model.parameters()), images.device)
    return images.to(device, search_dtype(model))


def _refuse_namesakes(
    sources: Mapping[str, nn.Module], targets: Mapping[str, nn.Module]
) -> None:
    if not sources or not targets:
        raise ValueError("a transfer needs at least one source and one target")
    for name in sources.keys() & targets.keys():
        if sources[name] is not targets[name]:
            raise ValueError(
                f"{name!r} names a source and another target: give them two names"
            )
