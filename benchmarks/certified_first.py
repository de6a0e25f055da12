"""Certificates before attacks, beside the official AutoAttack; and IBP training steps."""

from statistics import median
from time import perf_counter

import torch
from peers import find, official
from torch import Tensor, nn

import advnorm
from advnorm import models, norms, objectives
from advnorm.bounds import certify
from advnorm.objectives import Adversary
from advnorm.threat import Linf

RADII = (0.2, 0.15, 0.1, 0.07, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01, 0.007, 0.005)
COVERED, FASTER, STEP = 0.85, 5.0, 3.2


def radius(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return the largest radius at which CROWN covers enough, and how much it covers."""
    for eps in RADII:
        certified = certify(model, images, labels, Linf(eps), method="crown").certified
        covered = float(certified.double().mean())
        if covered >= COVERED:
            return eps, covered
    raise SystemExit(f"CROWN covers {covered:.0%} at eps {RADII[-1]}: nothing to measure")


def first(model: nn.Module, images: Tensor, labels: Tensor) -> bool:
    """Time the standard suite behind certificates; return whether what is asked holds."""
    eps, covered = radius(model, images, labels)
    begin = perf_counter()
    evaluation = advnorm.evaluate(
        model, images, labels, Linf(eps), conditions=["standard"], certificate="crown"
    )
    ours = perf_counter() - begin
    (key,) = evaluation.verdicts
    standing = torch.tensor(evaluation.verdicts[key].robust)
    print(f"certificates first, {len(images)} images, eps {eps:g}, covered {covered:.0%}: "
          f"ours {ours:.2f} s, {int(standing.sum())} stand", flush=True)  # fmt: skip
    if find("autoattack") is None:
        print("the official AutoAttack cannot be imported here: our own time alone")
        return True
    begin = perf_counter()
    theirs = official()(model, images, labels, Linf(eps)).cpu()
    seconds = perf_counter() - begin
    differ, ratio = int((theirs != standing).sum()), seconds / ours
    print(f"official AutoAttack {seconds:.2f} s, {int(theirs.sum())} stand; verdicts that "
          f"differ: {differ}; ratio {ratio:.1f} (limit {FASTER:g})")  # fmt: skip
    return differ == 0 and ratio >= FASTER


def steps(times: int = 40) -> bool:
    """Time IBP steps and plain steps in turn, small CNN, 100 images of MNIST's size."""
    good = True
    for norm in ("none", "batch"):
        torch.manual_seed(0)
        model = models.build(
            "cnn_small",
            shape=(1, 28, 28),
            classes=10,
            norm=norms.NORMS[norm](),
            standardize=models.Standardize([0.1307], [0.3081]),
            options={},
        )
        images, labels = torch.rand(100, 1, 28, 28), torch.randint(10, (100,))
        optimizer = torch.optim.Adam(model.parameters(), 5e-4, fused=True)
        spent: dict[str, list[float]] = {"standard": [], "ibp": []}
        for _ in range(times):
            for name, seconds in spent.items():
                begin = perf_counter()
                optimizer.zero_grad()
                objective = objectives.OBJECTIVES[name]
                adversary = Adversary(None, threat=Linf(0.1))
                objective(model, images, labels, adversary).total.backward()
                optimizer.step()
                seconds.append(perf_counter() - begin)
        plain, ibp = (median(seconds[5:]) for seconds in spent.values())
        good = good and ibp <= STEP * plain
        print(f"training step, norm {norm}: plain {plain * 1e3:.2f} ms, IBP "
              f"{ibp * 1e3:.2f} ms, ratio {ibp / plain:.2f} "
              f"(limit {STEP:g})", flush=True)  # fmt: skip
    return good
