"""Synthetic run folders, written through advnorm.records like real ones."""

import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from advnorm.records import (
    Accuracy,
    Environment,
    Epoch,
    Result,
    Run,
    ThreatRecord,
    Verdicts,
)

sys.path.insert(0, str(Path(__file__).parent))  # for what several tests share

MACHINE = Environment(
    advnorm="0.1.0",
    python="3.11.9",
    torch="2.13.0",
    platform="Linux x86_64",
    processor="Example CPU @ 2.00GHz",
    cores=4,
    device="cpu",
    threads=2,
)
EPS = 8 / 255
NATURAL = ("clean", "noise", "corruption", "statistics")


def kind_of(condition):
    """Return the kind of a condition, by its name."""
    if condition == "standard":
        return "suite"
    natural = (kind for kind in NATURAL if condition.startswith(kind))
    certificate = "certificate" if condition in ("ibp", "crown-ibp", "crown") else "attack"
    return next(natural, certificate)


class Maker:
    """Makes run folders under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, name, *, norm="batch", objective="madry", seed=0, recipe=None) -> Run:
        """Make a run that was not trained yet."""
        whole = {
            "name": "digits",
            "seed": seed,
            "data": {"name": "digits"},
            "model": {"name": "cnn", "width": 16},
            "norm": {"name": norm},
            "objective": {"name": objective},
            "threat": {"norm": "linf", "eps": "8/255"},
        } | (recipe or {})
        return Run.create(
            self.folder / name, yaml.safe_dump(whole, sort_keys=False), MACHINE
        )

    def train(self, run, *, epochs=12, level=0.7, alarms=(), validation=True) -> None:
        """Write a plausible training curve that ends near ``level``."""
        for epoch in range(epochs):
            rise = level * (1 - np.exp(-(epoch + 1) / 3))
            robust = Accuracy(correct=round(180 * rise), n=180)
            clean = Accuracy(correct=round(180 * min(1, rise * 1.25)), n=180)
            run.append_epoch(
                Epoch(
                    epoch=epoch,
                    step=10 * (epoch + 1),
                    lr=0.1,
                    eps=EPS,
                    loss=2.3 * np.exp(-(epoch + 1) / 4) + 0.6 * (1 - level),
                    train=robust,
                    validation_clean=clean if validation else None,
                    validation_robust=robust if validation else None,
                    best=epoch == epochs - 2,
                    alarms=alarms if epoch == epochs - 1 else (),
                    seconds=1.5,
                )
            )

    def result(
        self, run, attack, correct, *, n=1000, eps=None, flags=(), norm="linf", **more
    ) -> Result:
        """Write one result; no ``eps`` is no adversary."""
        values = {"data": "digits", "weights": "best", "seed": 0, "seconds": 1.0} | more
        result = Result(
            condition=attack,
            kind=kind_of(attack),
            threat=ThreatRecord(norm=norm, eps=eps) if eps else None,
            accuracy=Accuracy(correct=correct, n=n),
            flags=flags,
            **values,
        )
        run.write_result(result)
        return result

    def examples(self, run, key, *, shape=(1, 8, 8), count=6, **replaced) -> None:
        """Write example images whose adversarial half is wrong on every second one."""
        random = np.random.default_rng(0)
        clean = random.random((count, *shape), dtype=np.float32)
        noise = np.float32(EPS) * np.sign(
            random.standard_normal(clean.shape, dtype=np.float32)
        )
        labels = np.arange(count, dtype=np.int64)
        tensors = {
            "clean": clean,
            "adversarial": np.clip(clean + noise, 0, 1),
            "labels": labels,
            "clean_predictions": labels,
            "adversarial_predictions": labels + labels % 2,
        }
        save_file(tensors | replaced, run.examples(key))

    def tested(self, run, condition, *, labels, predictions, eps=None, **columns) -> Result:
        """Write verdicts and their result; a prediction that is not the label is wrong.

        ``columns`` are those of a record, and the fields of a result.
        """
        n = len(labels)
        fields = Verdicts.model_fields
        own = {k: tuple(columns.pop(k)) for k in list(columns) if k in fields}
        verdicts = Verdicts(
            **{
                "fingerprint": "print",
                "samples": tuple(range(n)),
                "labels": tuple(labels),
                "predictions": tuple(predictions),
                "robust": tuple(a == b for a, b in zip(labels, predictions, strict=True)),
                "by": ("",) * n,
            }
            | own
        )
        correct = sum(verdicts.robust)
        more = {"fingerprint": "print"} | columns
        result = self.result(run, condition, correct, n=n, eps=eps, **more)
        run.write_verdicts(result.key, verdicts)
        return result

    def random_verdicts(self, run, condition, *, n, seed, classes=10, eps=None, **more):
        """Write verdicts with every outcome that the condition can have, at random."""
        random = np.random.default_rng([seed, n])
        labels = np.random.default_rng(n).integers(0, classes, n)
        others = (labels + random.integers(1, classes, n)) % classes
        state = random.choice(
            4, n, p=[0.1, 0.4, 0.4, 0.1]
        )  # wrong, broken, robust, certified
        if not eps:
            state = np.where(state == 0, 0, 2)
        attacks = np.array(["apgd-ce", "apgd-dlr", "fab", "square"])
        by = np.where(state == 1, attacks[random.integers(0, 4, n)], "")
        return self.tested(
            run,
            condition,
            labels=labels.tolist(),
            predictions=np.where(state >= 2, labels, others).tolist(),
            by=by.tolist(),
            certified=(state == 3).tolist() if eps else (),
            eps=eps,
            **more,
        )

    def branches(self, *, attack="pgd-10", radii=(EPS / 2, EPS)) -> list[Run]:
        """Make a plain run and one with a mixture norm, whose branches differ."""
        plain, mixture = self.run("plain"), self.run("mixed", norm="mixture")
        levels = {None: 80, "adversarial": 70, "clean": 95, "worst": 60}
        for branch, level in levels.items():
            run = mixture if branch else plain
            self.result(run, "clean", level, n=100, branch=branch)
            for number, eps in enumerate(radii, start=1):
                correct = 1 if branch == "clean" else level - 20 * number
                self.result(run, attack, correct, n=100, eps=eps, branch=branch)
        return [plain, mixture]

    def study(self, *, shape=(1, 8, 8)) -> list[Run]:
        """Make four groups of two seeds with everything in them."""
        runs = []
        random = np.random.default_rng(1)
        kinds = [("batch", 0.55), ("mixture", 0.66), ("group", 0.6), ("none", 0.5)]
        for norm, level in kinds:
            for seed in (0, 1):
                run = self.run(f"{norm}-{seed}", norm=norm, seed=seed)
                here = level + random.normal(0, 0.008)
                alarms = (
                    ("training accuracy is far above held-out PGD",)
                    if norm == "none"
                    else ()
                )
                self.train(run, level=here, alarms=alarms if seed else ())
                self.result(run, "clean", round(1000 * min(0.98, here + 0.3)))
                self.result(run, "noise-0.1", round(1000 * min(0.97, here + 0.22)))
                for attack, loss in (("fgsm", 0.0), ("pgd-50", 0.04)):
                    for eps in (2, 4, 8, 12):
                        correct = round(1000 * max(0.02, here + 0.25 - eps * 0.03 - loss))
                        flags = (
                            ("a weaker attack does better",)
                            if norm == "group" and eps == 12
                            else ()
                        )
                        self.result(run, attack, correct, eps=eps / 255, flags=flags)
                self.examples(run, "pgd-50_linf_0.03137", shape=shape, count=8)
                runs.append(run)
        return runs


@pytest.fixture
def maker(tmp_path) -> Maker:
    return Maker(tmp_path / "runs")


@pytest.fixture(scope="session")
def maker_in() -> type[Maker]:
    """Return what makes runs in a folder, for fixtures that outlive a test."""
    return Maker


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> list[Run]:
    """Four groups of two seeds with everything in them; read only."""
    return Maker(tmp_path_factory.mktemp("study")).study()
