"""Certificates in an evaluation: as a column of their own, and before attacks.

A sample that a certificate covers needs no attack. No attack may ever break a sample that a
certificate covers at the same or a larger radius: :func:`refuse_meeting` looks for such a
pair among all results of a model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from advnorm.attacks import LogitsFn
from advnorm.bounds import METHODS, is_certified
from advnorm.draws import Draws
from advnorm.evaluation.conditions import Cell
from advnorm.evaluation.predictions import predict
from advnorm.evaluation.stages import STANDS, Judged
from advnorm.records import Result, Verdicts
from advnorm.registry import unknown


class CertificateError(ValueError):
    """An attack broke a sample that a certificate covers: one of the two is wrong."""


def certified_first(columns: Sequence[Cell], method: str) -> list[Cell]:
    """Return the cells, certificates before attacks; ``"none"`` leaves them as they are."""
    if method == "none":
        return list(columns)
    if method not in METHODS:
        raise unknown("certificate", method, ["none", *METHODS])
    return [
        replace(cell, certificate=method, settings=cell.settings | {"certify": method})
        if cell.attackers
        else cell
        for cell in columns
    ]


def judge_cell(
    model: nn.Module,
    cell: Cell,
    logits_fn: LogitsFn,
    clean: Tensor,
    labels: Tensor,
    draws: Draws,
) -> tuple[Judged, Tensor]:
    """Judge a batch by a cell; return which samples a certificate covers, too."""
    none = torch.zeros_like(labels, dtype=torch.bool)
    if cell.certificate is None:
        return cell.judge(logits_fn, clean, labels, draws), none
    predictions = predict(logits_fn, clean, labels)
    right = predictions == labels
    sure = none.masked_scatter(right, _covered(model, cell, clean[right], labels[right]))
    stands = torch.full_like(predictions, STANDS)
    if not cell.attackers:
        return Judged(clean, predictions, sure, stands), sure
    rest = (~sure).nonzero().squeeze(1)
    curve = sure[:, None].repeat(1, len(cell.counts)) if cell.counts else None
    found = Judged(clean.clone(), predictions, sure.clone(), stands, curve)
    if len(rest):
        attacked = cell.judge(logits_fn, clean[rest], labels[rest], draws[rest])
        for whole, part in zip(found, attacked, strict=True):
            if whole is not None and part is not None:
                whole[rest] = part
    return found, sure


def _covered(model: nn.Module, cell: Cell, clean: Tensor, labels: Tensor) -> Tensor:
    """Return which samples the cell's certificate covers."""
    assert cell.threat is not None and cell.certificate is not None
    dtype = next((p.dtype for p in model.parameters()), clean.dtype)
    clean = clean.to(dtype)
    return is_certified(model, clean, labels, cell.threat, method=cell.certificate)


def refuse_meeting(found: Iterable[tuple[Result, Verdicts]]) -> None:
    """Raise if an attack broke a sample that a certificate covers at its radius or more."""
    pairs = [(result, verdicts) for result, verdicts in found if result.threat]
    for proof, covers in pairs:
        sure = _sure(proof, covers)
        for result, verdicts in pairs if sure else ():
            broken = {s for s, by in zip(verdicts.samples, verdicts.by, strict=True) if by}
            met = sorted(sure & broken) if _comparable(proof, result) else []
            if met:
                raise CertificateError(
                    f"{result.key} broke sample {met[0]} (and {len(met) - 1} more), which "
                    f"{proof.key} covers: one of them is wrong, please report it"
                )


def _sure(result: Result, verdicts: Verdicts) -> set[int]:
    """Return the samples that a result's certificate covers."""
    covers = verdicts.robust if result.attack in METHODS else verdicts.certified
    return {s for s, yes in zip(verdicts.samples, covers, strict=False) if yes}


def _comparable(proof: Result, attack: Result) -> bool:
    """Tell whether an attack is on the same model and data, inside of the proof's set."""
    assert proof.threat and attack.threat
    same = all(
        getattr(proof, name) == getattr(attack, name)
        for name in ("weights", "data", "split", "branch", "statistics")
    )
    one, other = proof.threat, attack.threat
    inside = one.norm == other.norm and other.eps <= one.eps
    return same and inside and one.bounds == other.bounds
