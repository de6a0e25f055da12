"""What was timed on this machine, and the file in the user's cache that keeps it.

A calibration is of the settings that decide what a pass costs: model, norm, objective,
batch sizes, precision. Numbers of epochs, samples or attack steps are counted, and may
change without another calibration.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import NonNegativeFloat

from advnorm.data.locate import cache_folder
from advnorm.files import write_atomically
from advnorm.recipe import Recipe
from advnorm.records import Environment
from advnorm.records.base import LARGE, Record
from advnorm.records.reading import read_record

_COUNTED: dict[str, Any] = {
    "name": True,
    "seed": True,
    "epochs": True,
    "checkpoint_seconds": True,
    "init_from": True,
    "monitor": True,
    "perturbation": True,
    "data": {"train", "test", "validation"},
    "threat": {"eps", "schedule"},
    "attack": {"steps", "steps_schedule", "step_size", "clean_start"},
    "optimizer": {"lr", "schedule", "momentum", "weight_decay", "clip_norm"},
    "norm": {"freeze_epochs"},
    "validation": {"every", "samples", "steps", "eps", "select_by"},
    "evaluation": {
        *("conditions", "threat", "certificate", "radii", "step_ratio", "data"),
        *("samples", "weights", "branch", "examples"),
    },
}
"""Settings that change no cost of a single pass; they are counted, or decide values."""


class Machine(Record):
    """What times depend on besides the recipe."""

    processor: str
    """The name of the processor."""
    cores: int
    """The number of its cores."""
    device: str
    """Where the tensors are."""
    threads: int
    """Threads of torch."""
    torch: str
    """The version of torch."""
    advnorm: str
    """The version of advnorm."""

    @classmethod
    def here(cls, device: str = "cpu") -> "Machine":
        """Describe this machine, as it is set now."""
        facts = Environment.here(device=device, threads=torch.get_num_threads())
        return cls.model_validate(facts.model_dump(include=set(cls.model_fields)))

    def differences(self, other: "Machine") -> list[str]:
        """Return what differs, as ``threads 1, now 2``."""
        before, now = self.model_dump(), other.model_dump()
        changed = [name for name in before if before[name] != now[name]]
        return [f"{name} {before[name]}, now {now[name]}" for name in changed]

    def __str__(self) -> str:
        return (
            f"{self.cores} cores of {self.processor}, threads {self.threads}, device "
            f"{self.device}, torch {self.torch}"
        )


class Timing(NamedTuple):
    """The seconds of one call with a number of images and of passes for each."""

    rows: int
    passes: int
    seconds: float


class CallCost(Record):
    r"""The seconds of a call: :math:`a + b n + c p + d n p` for n images and p passes."""

    call: NonNegativeFloat = 0.0
    """Seconds of a call."""
    row: NonNegativeFloat = 0.0
    """Seconds of each image."""
    step: NonNegativeFloat = 0.0
    """Seconds of each pass."""
    row_step: NonNegativeFloat = 0.0
    """Seconds of each image in each pass."""
    first: NonNegativeFloat = 0.0
    """Seconds that the first call of a process takes longer."""

    def seconds(self, rows: float, passes: float = 1) -> float:
        """Return how long a call takes.

        >>> CallCost(call=1, row=0.5, step=0.25, row_step=0.125).seconds(4, 2)
        4.5
        """
        by_row = self.row + self.row_step * passes
        return self.call + self.step * passes + rows * by_row

    @classmethod
    def fit(cls, timings: Sequence[Timing]) -> "CallCost":
        """Fit timings by relative least squares; no coefficient is negative.

        >>> times = [Timing(n, p, 1 + 2 * n * p) for n in (1, 8) for p in (1, 3)]
        >>> round(CallCost.fit(times).seconds(100, 10), 3)
        2001.0
        """
        from scipy.optimize import nnls

        terms = np.array([[1, t.rows, t.passes, t.rows * t.passes] for t in timings], float)
        seconds = np.array([max(t.seconds, 1e-9) for t in timings])
        weighted = terms / seconds[:, None]
        scale = np.maximum(weighted.max(0), 1e-300)  # no passes at all: a column of 0
        values = nnls(weighted / scale, np.ones(len(timings)))[0] / scale
        call, row, step, row_step = (float(f"{value:.6g}") for value in values)
        return cls(call=call, row=row, step=step, row_step=row_step)


class Calibration(Record):
    """The costs of a recipe's work on one machine."""

    LIMIT: ClassVar[int] = LARGE
    recipe: str
    """The digest of the settings that decide them."""
    machine: Machine
    """Where they were timed."""
    start: NonNegativeFloat
    """Seconds from the call of a training to its second step, less one step."""
    load: NonNegativeFloat
    """Seconds until an evaluation has read and checked data and weights."""
    save: NonNegativeFloat
    """Seconds of the two checkpoints and the record of an epoch."""
    steps: dict[str, CallCost]
    """Training steps by kind; passes are the steps of the attack."""
    work: dict[str, CallCost]
    """Parts of conditions by name; passes are those of the attack for one image."""
    unmeasured: dict[str, str]
    """Parts that could not be timed, and why."""
    took: NonNegativeFloat = 0.0
    """Seconds that the calibration took."""


def digest(recipe: Recipe) -> str:
    """Return the digest of the settings that decide the cost of a pass."""
    kept: dict[str, Any] = recipe.model_dump(mode="json", exclude=_COUNTED)
    return sha256(repr(sorted(kept.items())).encode()).hexdigest()[:32]


def folder() -> Path:
    """Return where calibrations are kept."""
    return cache_folder() / "calibrations"


def store(calibration: Calibration) -> Path:
    """Write a calibration into the user's cache; return its path."""
    path = folder() / f"{calibration.recipe}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, calibration.model_dump_json(indent=1).encode())
    return path


class Stored(NamedTuple):
    """A calibration that fits this machine, or why there is none."""

    calibration: Calibration | None
    problem: str = ""
    """Empty where there is a calibration, or where none was ever made."""


def load(recipe: Recipe, machine: Machine) -> Stored:
    """Read the calibration of a recipe; a damaged or outdated one is named, not used."""
    path = folder() / f"{digest(recipe)}.json"
    again = "measure this machine again with --calibrate"
    if not path.exists():
        return Stored(None)
    try:
        calibration = read_record(path, Calibration)
    except (ValueError, OSError) as error:
        reason = str(error).removesuffix(": remove it and run again")
        return Stored(None, f"the calibration cannot be used: {reason}; {again}")
    changed = calibration.machine.differences(machine)
    if changed or calibration.recipe != digest(recipe):
        what = "; ".join(changed) or "it is of another recipe"
        return Stored(None, f"the calibration is outdated ({what}): {again}")
    return Stored(calibration)
