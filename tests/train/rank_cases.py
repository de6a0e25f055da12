"""What each of two ranks trains; a module of its own, so that a new process finds it."""

from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file

from advnorm.objectives import OBJECTIVES
from advnorm.recipe import Recipe, RecipeError, from_yaml, override
from advnorm.records import Run
from advnorm.train import assess, check, train

TINY = override(
    Recipe(),
    [
        "data={name: digits, train: 240, test: 20}",
        "model.options={depth: 1, width: 6}",
        "precision=float64",
        "attack={steps: 2, step_size: 0.1}",
        "optimizer.rate=0.05",
        "batch_size=12",
        "epochs=1",  # of twenty steps
        "validation={samples: 10, steps: 1}",
    ],
)
NORMS = {
    "none": ["norm.name=none"],
    "group": ["norm={name: group, options: {groups: 2}}"],
    **{
        name: [f"norm={{name: {name}, options: {{sync: true}}}}"]
        for name in ("batch", "mixture", "dual", "borrowed")
    },
}
RULES = {
    "sam": "{name: sam, rho: 0.05}",
    "apart": "{name: apart, eps: 0.1, samples: 8, groups: 2}",
    "apart_sam": "{name: apart_sam, eps: 0.1, rho: 0.05, groups: 3}",
}
OTHERS = {
    "sam none": ["norm.name=none", "gradient.name=sam"],
    "accumulated": [*NORMS["batch"], "gradient.name=apart", "optimizer.accumulate=2"],
    "mixup": ["data.mixup=0.4", "norm.name=none"],
    "mixup, batch of 11": [
        "data.mixup=0.4",
        "norm.name=none",
        "batch_size=11",
        "data.train=220",
    ],
    "batch of 11": [*NORMS["batch"], "batch_size=11", "data.train=220"],
    "attack with batch statistics": [*NORMS["batch"], "attack.statistics=batch"],
    "half of the clean images": [
        *NORMS["mixture"],
        "objective={name: mixed, clean_share: 0.5}",
    ],
    "sequential": [*NORMS["batch"], "objective={name: mixed, batching: sequential}"],
    "l2, least likely": [*NORMS["group"], "threat.norm=l2", "attack.target=least_likely"],
    "adam": ["norm.name=none", "optimizer={name: adam, rate: 1e-3}"],
    "frozen statistics": [
        *NORMS["batch"],
        "norm.freeze_last=1",
        "epochs=2",
        "batch_size=24",
    ],
    "a batch larger than the data": [
        *NORMS["batch"],
        "batch_size=500",
        "epochs=20",
        "data.train=12",
    ],
}


def _allowed(changes) -> bool:
    try:
        check(override(TINY, changes))
    except RecipeError:
        return False
    return True


CASES = {
    f"{objective} {norm}": [f"objective.name={objective}", *changes]
    for objective, (norm, changes) in product(OBJECTIVES, NORMS.items())
    if _allowed([f"objective.name={objective}", *changes])
} | OTHERS
CASES |= {
    f"{objective} {rule}": [
        *NORMS["batch"],
        f"objective.name={objective}",
        f"gradient={settings}",
    ]
    for objective, (rule, settings) in product(OBJECTIVES, RULES.items())
    if _allowed([f"objective.name={objective}", f"gradient={settings}"])
}

QUICK = ["pgd none", "mixed dual", "trades batch", "mixup, batch of 11", "pgd apart_sam"]

# 41 samples in batches of 20 a rank: the last batch is a single sample.
JUDGED = ["evaluation={attacks: [clean, noise-0.2, fgsm, pgd-3x2], batch_size: 20}"]
SUITES = [
    "evaluation={attacks: [standard, quick], batch_size: 20, eps: [0.1], branch: worst}"
]


def trained(changes, out: Path):
    """Train, and return all weights, buffers and optimizer memory, and all metrics."""
    run = train(override(TINY, changes), out, device="cpu")
    return tensors(run), [epoch.model_dump(exclude={"seconds"}) for epoch in run.epochs()]


def tensors(run: Run):
    return load_file(sorted(run.checkpoints.glob("state-*.safetensors"))[-1])


def judged(run: Run, changes=JUDGED):
    assess(run, override(from_yaml(run.recipe_text()), changes), device="cpu")


def rank(index, names, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=index, world_size=2
    )
    for name in names:
        trained(CASES[name], Path(folder) / name)
    for path in Path(folder).glob("judged*"):
        judged(Run.open(path), SUITES if path.name == "judged-suites" else JUDGED)
    dist.destroy_process_group()
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if "gloo" in name], "a group's threads are left"
