"""Which samples stand under ours and under the official AutoAttack."""

import json
from pathlib import Path
from time import perf_counter

import torch
from peers import find, official
from torch import Tensor
from trained_models import TrainedModel

import advnorm

POINTS, SHARE = 0.2, 0.005  # of robust accuracy, of the verdicts


def agree(
    models: list[TrainedModel], keep: Path | None, *, again: int | None = None
) -> bool:
    """Print one line a model; return whether all are within the limits.

    With ``again`` ours is the official code too, with that seed, and nothing is a limit.
    """
    if find("autoattack") is None:
        print("the official AutoAttack cannot be imported (--official PATH): not compared")
        return True
    name = "ours" if again is None else f"official, seed {again}"
    print(f"| run | n | eps | {name} | official | apart (points) | verdicts that differ |")
    print("|---|---|---|---|---|---|---|")
    return all([_line(each, keep, again) for each in models]) or again is not None


def _line(trained: TrainedModel, keep: Path | None, again: int | None) -> bool:
    start = perf_counter()
    theirs = _official(trained, keep)
    between = perf_counter()
    ours = _ours(trained) if again is None else _official(trained, keep, again)
    n = len(ours)
    apart = abs(int(ours.sum()) - int(theirs.sum())) / n * 100
    differ = int((ours != theirs).sum())
    good = apart <= POINTS and differ <= SHARE * n
    print(
        f"| {trained.name} | {n} | {trained.threat.eps:.4g} | {ours.float().mean():.1%} | "
        f"{theirs.float().mean():.1%} | {apart:.2f} | {differ} ({differ / n:.2%}; breaks "
        f"{int((theirs & ~ours).sum())} more, misses {int((ours & ~theirs).sum())})"
        f"{'' if good or again is not None else ' OVER THE LIMIT'} |",
        f"<!-- {between - start:.0f} s, {perf_counter() - between:.0f} s -->",
        flush=True,
    )
    return good


def _ours(trained: TrainedModel) -> Tensor:
    evaluation = advnorm.evaluate(
        trained.model,
        trained.images,
        trained.labels,
        trained.threat,
        conditions=["standard"],
    )
    return torch.tensor(next(iter(evaluation.verdicts.values())).robust)


def _official(trained: TrainedModel, keep: Path | None, seed: int = 0) -> Tensor:
    """Run the peer, or read what it said of this model and these samples before."""
    facts = [trained.weights, repr(trained.threat), len(trained.labels)]
    name = trained.name
    if seed:
        facts, name = [*facts, seed], f"{name}-seed{seed}"
    path = keep / f"{name}.json" if keep else None
    if path and path.exists():
        known = json.loads(path.read_text())
        if known["facts"] == facts:
            return torch.tensor(known["stands"])
    peer = official(seed=seed)
    robust = peer(trained.model, trained.images, trained.labels, trained.threat)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"facts": facts, "stands": robust.tolist()}))
    return robust
