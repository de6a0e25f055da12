"""The run folder and its typed records. Anything printed is recomputed from here.

A run folder holds ``recipe.yaml``, ``environment.json``, ``metrics.jsonl`` (a line an
epoch), ``checkpoints/``, ``results/*.json`` (one attack each), ``verdicts/*.json`` (one
verdict a sample, the same names), ``examples/*.safetensors`` (a few images, the same
names), ``diagnoses/*.json`` (one question each), ``audits/*.json`` (is the robustness
real?) and ``report.html``. This module imports no torch, so that a report can be made
anywhere.
"""

import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from math import sqrt
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from advnorm.files import locked, write_atomically

Setting = str | int | float | bool | None


class Record(BaseModel):
    """A frozen value with known fields, JSON in and out."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


R = TypeVar("R", bound=Record)


class Accuracy(Record):
    """``correct`` of ``n`` samples, with its 95% interval."""

    correct: int
    n: int

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not 0 <= self.correct <= self.n:
            raise ValueError(f"{self.correct} correct of {self.n} cannot be")
        return self

    @property
    def rate(self) -> float:
        """The fraction that was right."""
        return self.correct / self.n if self.n else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% score interval (Wilson, 1927); inside [0, 1] also at the ends.

        >>> low, high = Accuracy(correct=9, n=10).interval
        >>> round(low, 3), round(high, 3)
        (0.596, 0.982)
        """
        if not self.n:
            return (0.0, 1.0)
        z, p, n = 1.959963984540054, self.rate, self.n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return (max(0.0, centre - half), min(1.0, centre + half))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.1%} [{low:.1%}, {high:.1%}] n={self.n}"


class ThreatRecord(Record):
    """What the adversary may change."""

    norm: str
    eps: float
    bounds: tuple[float, float] = (0.0, 1.0)


class Epoch(Record):
    """One line of ``metrics.jsonl``."""

    epoch: int
    step: int
    rate: float
    eps: float
    loss: float
    parts: dict[str, float] = {}
    train: Accuracy
    """On the images that were trained on: adversarial ones where the objective has them."""
    validation_clean: Accuracy | None = None
    validation_robust: Accuracy | None = None
    best: bool = False
    alarms: tuple[str, ...] = ()
    seconds: float


class Result(Record):
    """One attack on one model: ``results/<key>.json``."""

    attack: str
    settings: dict[str, Setting] = {}
    threat: ThreatRecord | None = None
    """``None`` for what has no adversary: clean images and noise."""
    accuracy: Accuracy
    curve: dict[int, Accuracy] = {}
    """Of a curve: the accuracy after so many steps; the last is ``accuracy``."""
    data: str
    other: bool = False
    """Whether this is another data set than the run's own."""
    split: str = "test"
    weights: str
    """Which checkpoint, and its SHA-256: ``best-00000400 sha256:...``."""
    statistics: Literal["running", "batch"] = "running"
    branch: Literal["adversarial", "clean", "worst"] | None = None
    """Of a model with a mixture norm: the branch that answered and was attacked."""
    seed: int
    seconds: float
    flags: tuple[str, ...] = ()
    """Reasons to doubt the number; never printed without them."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about how it was measured, such as a fallback."""
    fingerprint: str = ""
    """Of everything that decided it, as in its verdicts."""

    @property
    def key(self) -> str:
        """A file name that says attack, norm and radius."""
        other = self.data if self.other else None
        return result_key(self.attack, self.threat, self.branch, other)


def result_key(
    attack: str,
    threat: ThreatRecord | None,
    branch: str | None = None,
    data: str | None = None,
) -> str:
    """Name a result: attack, norm, radius; the branch or another data set if there is one.

    >>> result_key("pgd-10", ThreatRecord(norm="linf", eps=8 / 255), "clean")
    'pgd-10_linf_0.03137@clean'
    >>> result_key("clean", None, data="mnist-c:fog")
    'clean~mnist-c-fog'
    >>> result_key("pgd-9+step=1/255", ThreatRecord(norm="linf", eps=0.1))
    'pgd-9+step=1of255_linf_0.1'
    """
    name = attack.replace("/", "of")  # it names files
    name = f"{name}_{threat.norm}_{threat.eps:.4g}" if threat else name
    name = f"{name}@{branch}" if branch else name
    return f"{name}~{re.sub(r'[^A-Za-z0-9.]+', '-', data)}" if data else name


class Verdicts(Record):
    """One verdict a sample: what was predicted, and whether it stayed right."""

    fingerprint: str = ""
    """Of everything that decides them; verdicts of other settings are not gone on with."""
    samples: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    predictions: tuple[int, ...] = ()
    """Under the attack where it succeeded, else on the clean image."""
    robust: tuple[bool, ...] = ()
    by: tuple[str, ...] = ()
    """The attack that broke a sample; empty if it stands, or was wrong from the start."""
    certified: tuple[bool, ...] = ()
    """Whether a certificate covers a sample, which is then not attacked; or empty."""
    curve: tuple[tuple[bool, ...], ...] = ()
    """Of a curve: whether a sample stayed right, at each step count."""

    def accuracy(self) -> Accuracy:
        """Count them."""
        return Accuracy(correct=sum(self.robust), n=len(self.robust))

    def accuracies(self, counts: Sequence[int]) -> dict[int, Accuracy]:
        """Count them at each step count of a curve."""
        return {
            count: Accuracy(correct=sum(row[i] for row in self.curve), n=len(self.curve))
            for i, count in enumerate(counts)
        }


class TransferMatrix(Record):
    """One attack made on each source and judged by each target."""

    attack: str
    settings: dict[str, Setting] = {}
    threat: ThreatRecord
    data: str
    seed: int
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    clean: tuple[Accuracy, ...]
    """Of each target, without an adversary."""
    accuracies: tuple[tuple[Accuracy, ...], ...]
    """One row a source, one column a target; where both are one, the white-box accuracy."""
    branches: dict[str, str] = {}
    """Of models with a mixture norm: the branch that was attacked, and that answers."""
    weights: dict[str, str] = {}
    """Of runs: which checkpoint, and its SHA-256."""
    seconds: float

    def __str__(self) -> str:
        head = f"{self.attack}, {self.threat.norm}, eps {self.threat.eps:.4g}, {self.data}"
        rows = [("source \\ target", *self.targets)]
        rows.append(("clean", *(str(a) for a in self.clean)))
        for source, row in zip(self.sources, self.accuracies, strict=True):
            rows.append((source, *(str(a) for a in row)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([head, *(line.rstrip() for line in lines)])


class Series(Record):
    """A line or a cloud of points, under a name."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.x) != len(self.y):
            raise ValueError(f"{self.name}: {len(self.x)} x and {len(self.y)} y")
        return self


class Picture(Record):
    """A small image: its channels (1 or 3), each a list of rows."""

    label: str
    channels: tuple[tuple[tuple[float, ...], ...], ...]
    signed: bool = False
    """Whether zero is the middle of its colours, as for weights."""


class Panel(Record):
    """One drawing of a diagnosis."""

    kind: Literal["lines", "points", "bars", "pictures"]
    title: str
    x: str = ""
    y: str = ""
    log: bool = False
    """Whether the y axis is logarithmic."""
    series: tuple[Series, ...] = ()
    pictures: tuple[Picture, ...] = ()


class Diagnosis(Record):
    """The answer to one question about a model: ``diagnoses/<question>.json``."""

    question: str
    source: str
    """Paper and figure or table that ask it."""
    reading: str
    """One sentence that says how to read the panels."""
    numbers: dict[str, float] = {}
    settings: dict[str, Setting] = {}
    panels: tuple[Panel, ...] = ()
    weights: str = "given"
    seconds: float = 0.0


class Check(Record):
    """One question about a robust accuracy, answered."""

    name: str
    status: Literal["passed", "flagged", "not run"]
    numbers: dict[str, float] = {}
    says: str
    """What was seen and what to do about it; or why it was not run."""

    @property
    def flag(self) -> str:
        """The sentence that stands beside every accuracy that this check concerns."""
        return f"{AUDITED}{self.name}: {self._told}"

    @property
    def _shown(self) -> str:
        return ", ".join(f"{key} {value:.4g}" for key, value in self.numbers.items())

    @property
    def _told(self) -> str:
        return f"{self.says} ({self._shown})" if self.numbers else self.says

    def __str__(self) -> str:
        told = self._shown if self.status == "passed" else self._told
        return f"{_SIGNS[self.status]} {self.name:<24} {told}"


AUDITED = "audit, "
"""How the flags of an audit begin, so that a later one replaces them."""
_SIGNS = {"passed": "  ok  ", "flagged": "  FLAG", "not run": "  -   "}


class Audit(Record):
    """Whether a robustness is real: ``audits/<key>.json``."""

    threat: ThreatRecord
    n: int
    clean: Accuracy
    weak: Accuracy | None = None
    """Under the attack that is doubted (PGD-10)."""
    strong: Accuracy | None = None
    """Under all attacks of the audit together."""
    suite: tuple[str, ...] = ()
    """The strong attacks."""
    checks: tuple[Check, ...]
    weights: str = "given"
    branch: Literal["adversarial", "clean"] | None = None
    seed: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """A file name that says norm, radius and branch."""
        return result_key("audit", self.threat, self.branch)

    @property
    def flagged(self) -> tuple[str, ...]:
        """The names of the checks that found something."""
        return tuple(check.name for check in self.checks if check.status == "flagged")

    @property
    def flags(self) -> tuple[str, ...]:
        """What stands beside an accuracy of this model: a sentence a flagged check."""
        return tuple(check.flag for check in self.checks if check.status == "flagged")

    def concerns(self, result: Result) -> bool:
        """Tell whether it speaks of this result: same weights and branch, an adversary."""
        branches = (self.branch, "worst") if self.branch else (None,)
        return (
            result.threat is not None
            and result.weights == self.weights
            and result.branch in branches
        )

    def __str__(self) -> str:
        where = f"{self.threat.norm} {self.threat.eps:.4g}"
        head = [f"audit at {where}: clean {self.clean}"]
        if self.weak and self.strong:
            head.append(f"pgd-10 {self.weak}; {' + '.join(self.suite)} {self.strong}")
        found = len(self.flagged)
        end = f"{found} of {len(self.checks)} checks flagged" if found else "no flag"
        return "\n".join([*head, *(str(check) for check in self.checks), end])


def with_flags(result: Result, audits: Sequence[Audit]) -> Result:
    """Put the flags of the audits that concern a result beside its own."""
    heard = [audit for audit in audits if audit.concerns(result)]
    own = (flag for flag in result.flags if not (heard and flag.startswith(AUDITED)))
    found = (flag for audit in heard for flag in audit.flags)
    return result.model_copy(update={"flags": tuple(dict.fromkeys((*own, *found)))})


class Environment(Record):
    """Where and with what a run was made."""

    advnorm: str
    python: str
    torch: str
    platform: str
    processor: str
    cores: int
    device: str
    threads: int
    ranks: int = 1
    """Processes that trained together."""
    launch: str = ""
    """Which torchrun started them: its restarts go on with the run."""

    @classmethod
    def here(
        cls, *, device: str, threads: int, ranks: int = 1, launch: str = ""
    ) -> "Environment":
        """Describe this machine."""
        return cls(
            advnorm=_version("advnorm"),
            python=platform.python_version(),
            torch=_version("torch"),
            platform=f"{platform.system()} {platform.machine()}",
            processor=_processor(),
            cores=os.cpu_count() or 1,
            device=device,
            threads=threads,
            ranks=ranks,
            launch=launch,
        )


_FOLDERS = ("checkpoints", "results", "verdicts", "examples")
_PARTS = (*_FOLDERS, "environment.json", ".lock")  # all that a beginning may leave behind


class Run:
    """A run folder. Every write is atomic; every read names the file that is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, recipe: str, environment: Environment) -> "Run":
        """Make a new run folder from the text of its recipe; an existing one is refused."""
        if (path / "recipe.yaml").exists():
            raise FileExistsError(
                f"{path} already holds a run: add --resume to go on with it, "
                "or choose another --out"
            )
        if path.is_file():
            raise FileExistsError(f"{path} is a file: choose another --out")
        if path.is_dir() and {entry.name for entry in path.iterdir()} - set(_PARTS):
            raise FileExistsError(f"{path} exists and is not empty: choose another --out")
        run = cls(path)
        try:
            for folder in _FOLDERS:
                (path / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write to {path}: {error.strerror}; choose another --out",
            ) from error
        run.write_environment(environment)
        write_atomically(path / "recipe.yaml", recipe.encode())
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Return an existing run folder, or say why it is none."""
        if not (path / "recipe.yaml").is_file():
            raise FileNotFoundError(
                f"{path} is not a run folder (it has no recipe.yaml): "
                "give the --out of an 'advnorm train'"
            )
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """The folder of the weights."""
        return self.path / "checkpoints"

    def recipe_text(self) -> str:
        """Return the recipe as it was written when the run began."""
        path = self.path / "recipe.yaml"
        try:
            return path.read_text()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not a text file: it is damaged") from None

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder for the time of a block."""
        return locked(self.path / ".lock")

    def recipe(self) -> dict[str, Any]:
        """Return the recipe as plain values."""
        return dict(yaml.safe_load(self.recipe_text()))

    def write_environment(self, environment: Environment) -> None:
        """Write ``environment.json``."""
        _write(self.path / "environment.json", environment)

    def environment(self) -> Environment:
        """Read ``environment.json``."""
        return _read(self.path / "environment.json", Environment)

    def append_epoch(self, epoch: Epoch) -> None:
        """Add a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(epoch.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def truncate_epochs(self, count: int) -> None:
        """Keep the first ``count`` lines: what came after the checkpoint is done again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)[:count]
            write_atomically(path, "".join(lines).encode())

    def epochs(self) -> list[Epoch]:
        """Read ``metrics.jsonl``; a last line cut short by a kill is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        return [_parse(path, line, Epoch) for line in whole]

    def write_result(self, result: Result) -> None:
        """Write ``results/<key>.json``."""
        (self.path / "results").mkdir(exist_ok=True)
        _write(self.path / "results" / f"{result.key}.json", result)

    def results(self) -> list[Result]:
        """Read all results, in the order of their names."""
        paths = sorted((self.path / "results").glob("*.json"))
        return [_read(path, Result) for path in paths]

    def result(self, key: str) -> Result | None:
        """Read one result, if it is there."""
        path = self.path / "results" / f"{key}.json"
        return _read(path, Result) if path.exists() else None

    def write_audit(self, audit: Audit) -> None:
        """Write ``audits/<key>.json``, and its flags beside the results it concerns."""
        (self.path / "audits").mkdir(exist_ok=True)
        _write(self.path / "audits" / f"{audit.key}.json", audit)
        audits = self.audits()
        for result in self.results():
            told = with_flags(result, audits)
            if told.flags != result.flags:
                self.write_result(told)

    def audits(self) -> list[Audit]:
        """Read all audits, in the order of their names."""
        return [
            _read(path, Audit) for path in sorted((self.path / "audits").glob("*.json"))
        ]

    def write_verdicts(self, key: str, verdicts: Verdicts) -> None:
        """Write ``verdicts/<key>.json``."""
        (self.path / "verdicts").mkdir(exist_ok=True)
        _write(self.path / "verdicts" / f"{key}.json", verdicts)

    def verdicts(self, key: str) -> Verdicts:
        """Read the verdicts of one attack; none yet is an empty record."""
        path = self.path / "verdicts" / f"{key}.json"
        return _read(path, Verdicts) if path.exists() else Verdicts()

    def write_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Write ``diagnoses/<question>.json``."""
        (self.path / "diagnoses").mkdir(exist_ok=True)
        _write(self.path / "diagnoses" / f"{diagnosis.question}.json", diagnosis)

    def diagnoses(self) -> list[Diagnosis]:
        """Read all diagnoses, in the order of their names."""
        paths = sorted((self.path / "diagnoses").glob("*.json"))
        return [_read(path, Diagnosis) for path in paths]

    def examples(self, key: str) -> Path:
        """Where the example images of one attack are kept."""
        return self.path / "examples" / f"{key}.safetensors"


def _write(path: Path, record: Record) -> None:
    write_atomically(path, record.model_dump_json(indent=None).encode())


def _read(path: Path, kind: type[R]) -> R:
    try:
        return _parse(path, path.read_text(), kind)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}): remove it and run again") from None


def _parse(path: Path, text: str, kind: type[R]) -> R:
    try:
        return kind.model_validate(json.loads(text))
    except (ValidationError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it and run again") from error


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
