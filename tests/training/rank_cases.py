"""What each of two ranks trains; a module of its own, so that a new process finds it."""

import json
from datetime import timedelta
from hashlib import sha256
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file

from advnorm import objectives
from advnorm.objectives import OBJECTIVES
from advnorm.recipe import Recipe, RecipeError, from_yaml, override
from advnorm.records import Run
from advnorm.runs import evaluate_run, perturb_run, transfer_runs
from advnorm.training import NotFiniteError, check_recipe, train
from advnorm.training.step import Stepper
from advnorm.training.step_probe import StepProbe

TINY = override(
    Recipe(),
    [
        "data={name: digits, train: 240, test: 20}",
        "model.options={depth: 1, width: 6}",
        "precision=float64",
        "attack={steps: 2, step_size: 0.1}",
        "optimizer.lr=0.05",
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
        for name in ("batch", "mixture", "dual", "borrowed", "affine")
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
    "adam": ["norm.name=none", "optimizer={name: adam, lr: 1e-3}"],
    "compile: auto": ["norm.name=none", "compile=auto"],
    "frozen statistics": [
        *NORMS["batch"],
        "norm.freeze_epochs=1",
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
        check_recipe(override(TINY, changes))
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
EVALUATION = ["evaluation={conditions: [clean, noise-0.2, fgsm, pgd-3x2], batch_size: 20}"]
SUITES = [
    "evaluation={conditions: [standard, quick], batch_size: 20, threat: {eps: [0.1]}, branch: worst}"
]
PERTURBATION = [
    "perturbation={directions: [uniform, adversarial], parts: [mean], radii: [0.3]}",
    "evaluation={batch_size: 20}",
]
TRANSFER = ["evaluation={conditions: [pgd-3, fgsm], threat: {eps: []}, batch_size: 20}"]
LOOKS = "monitor={every: 3, questions: [gradient_norm, moments, wasserstein]}"
SHARP = "monitor={every: 7, questions: [gradient_norm, hessian], hessian_steps: 200}"
WATCHED = {
    "synced": ([*NORMS["mixture"], "objective.name=mixed"], LOOKS),
    "own statistics": (
        ["objective.name=standard", "norm.name=batch", "batch_size=11", "data.train=220"],
        LOOKS,
    ),
    "sharp": (["norm.name=none", "objective.name=standard"], SHARP),
}

QUARTER = "objective={name: mixed, clean_share: 0.25}"
REFUSED = {
    "groups of one sample": ["gradient={name: apart, groups: 6}"],
    "one sample": ["gradient={name: apart, samples: 2}"],
    "parts of one sample": ["optimizer.accumulate=6"],
    "clean images": [QUARTER, "batch_size=16", "gradient={name: apart, groups: 4}"],
    "odd batch": ["batch_size=11", "gradient={name: apart, samples: 4}"],
}
SYNCED = {
    name: [*REFUSED[name], "norm.options={sync: true}"]
    for name in ("groups of one sample", "one sample", "parts of one sample")
}


def trained(changes, out: Path):
    """Train, and return all weights, buffers and optimizer memory, and all metrics."""
    run = train(override(TINY, changes), out, device="cpu")
    return tensors(run), [epoch.model_dump(exclude={"seconds"}) for epoch in run.epochs()]


def tensors(run: Run):
    return load_file(sorted(run.checkpoints.glob("state-*.safetensors"))[-1])


def evaluate_with(run: Run, changes=EVALUATION):
    evaluate_run(run, override(from_yaml(run.recipe_text()), changes), device="cpu")


def perturb(run: Run):
    perturb_run(run, override(from_yaml(run.recipe_text()), PERTURBATION), device="cpu")


def transfer_matrices(runs: list[Run]):
    """Return the matrices of a transfer, without the time that they took."""
    recipes = [override(from_yaml(run.recipe_text()), TRANSFER) for run in runs]
    matrices = transfer_runs(runs, recipes, device="cpu")
    return [matrix.model_dump(mode="json", exclude={"seconds"}) for matrix in matrices]


class NotFiniteObjective:
    """The PGD objective; on the second rank, its third step is not a number somewhere."""

    def __init__(self, what):
        self.what, self.calls = what, 0

    def __call__(self, model, clean, labels, adversary):
        self.calls += 1
        now = self.calls == 3 and dist.get_rank() == 1
        if now and self.what == "attack":
            clean = clean * float("nan")
        loss = objectives.pgd(model, clean, labels, adversary)
        if now and self.what == "loss":
            return loss._replace(total=loss.total * float("nan"))
        if now and self.what == "gradient":  # a finite loss whose derivative is not
            weight = next(p for p in model.parameters() if p.ndim > 1)
            return loss._replace(total=loss.total + (weight.sum() * 0).sqrt())
        return loss


def train_with_nan(what, out: Path):
    """Return what a rank says about another's NaN, and how often its weights moved."""
    steps, original = [], torch.optim.SGD.step
    OBJECTIVES._entries["pgd"] = NotFiniteObjective(what)
    torch.optim.SGD.step = lambda *a, **k: (steps.append(1), original(*a, **k))[1]
    try:
        trained([], out)
        return "nothing", len(steps)
    except NotFiniteError as error:
        return str(error), len(steps)
    finally:
        OBJECTIVES._entries["pgd"], torch.optim.SGD.step = objectives.pgd, original


def followed(changes, out: Path):
    """Train, and return a digest of this rank's own weights and buffers after each step."""
    digest, original = sha256(), Stepper.__call__

    def step(self, batch, state):
        numbers = original(self, batch, state)
        for value in self.experiment.model.state_dict().values():
            digest.update(value.numpy().tobytes())
        return numbers

    Stepper.__call__ = step
    try:
        trained(changes, out)
    finally:
        Stepper.__call__ = original
    return digest.hexdigest()


def watched(folder: Path):
    """Return digests of every watched case, with and without."""
    return {
        name: {
            "plain": followed(changes, folder / f"{name}, plain"),
            "watched": followed([*changes, looks], folder / f"{name}, watched"),
        }
        for name, (changes, looks) in WATCHED.items()
    }


def blunt(out: Path):
    """Return what a rank says where the first one does not find the Hessian."""
    original = StepProbe.sharpness

    def fails(*_, **__):
        raise ValueError("no eigenvalue")

    changes, looks = WATCHED["sharp"]
    StepProbe.sharpness = fails
    try:
        trained([*changes, looks], out)
        return "nothing"
    except ValueError as error:
        return str(error)
    finally:
        StepProbe.sharpness = original


def refused(changes, out: Path):
    """Return what a rank says of a recipe before it makes a folder, else nothing."""
    try:
        trained(changes, out)
    except ValueError as error:
        return "" if out.exists() else str(error)
    return ""


def others(index, folder: Path):
    """Do what else ranks do together, and write each rank's outcomes."""
    outcomes = {
        what: train_with_nan(what, folder / what) for what in ("loss", "gradient", "attack")
    }
    outcomes |= {"watched": watched(folder), "blunt": blunt(folder / "blunt")}
    perturb(Run.open(folder / "evaluated"))
    outcomes["refused"] = {n: refused(c, folder / f"no {n}") for n, c in REFUSED.items()}
    outcomes["synced"] = {n: refused(c, folder / f"synced {n}") for n, c in SYNCED.items()}
    outcomes["transfer"] = transfer_matrices(
        [Run.open(folder / name) for name in ("evaluated", "other")]
    )
    (folder / f"rank-{index}.json").write_text(json.dumps(outcomes))


def rank(index, names, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=index,
        world_size=2,
        timeout=timedelta(minutes=10),
    )
    for name in names:
        trained(CASES[name], Path(folder) / name)
    if (Path(folder) / "other").exists():
        others(index, Path(folder))
    for path in Path(folder).glob("evaluated*"):
        evaluate_with(
            Run.open(path), SUITES if path.name == "evaluated-suites" else EVALUATION
        )
    dist.destroy_process_group()
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if "gloo" in name], "a group's threads are left"
