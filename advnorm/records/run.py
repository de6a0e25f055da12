"""The run folder: every write is atomic, every read names the file that is wrong."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advnorm.files import TEXT, append, locked, read_bytes, read_text, write_atomically
from advnorm.records.audits import Audit, with_flags
from advnorm.records.base import Record
from advnorm.records.cleanup import clear
from advnorm.records.compiling import CompileDecision
from advnorm.records.diagnoses import Diagnosis
from advnorm.records.environment import Environment
from advnorm.records.monitoring import MonitoredStep
from advnorm.records.reading import EARLIER_VERSION, LINES, read_lines, read_record
from advnorm.records.results import Epoch, Result, Verdicts
from advnorm.safe_yaml import load as load_yaml

_FOLDERS = ("checkpoints", "results", "verdicts", "examples")
# What a killed process may have left of a run that had just begun:
_PARTS = (*_FOLDERS, "environment.json", ".lock")
# Of the recipes that earlier versions wrote; today these are init_from and monitor:
_EARLIER_SECTIONS = re.compile(rb"^(start|watch):", re.MULTILINE)
_CUT_SHORT = re.compile(r"\.(recipe\.yaml|environment\.json)\.\d+\.tmp")


class RunLostError(ValueError):
    """A run folder, or a file of it, was removed while a process worked with it."""

    def __init__(self, path: Path, what: str, remedy: str = "") -> None:
        super().__init__(
            f"{path} {what} while it was in use: stopped, and nothing more is written "
            f"there; {remedy or 'put it back, or name the run where it is now'}"
        )
        self.path, self.what = path, what


class Run:
    """A run folder. Every write is atomic; every read names the file that is wrong.

    Nothing is written to a folder that was removed, or replaced by another one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: os.stat_result | None = None
        """The status of the lock file, while this process holds it."""
        self._sizes: dict[str, int] = {}
        """The sizes of the files that grow line by line, after this process's last line."""

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
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
        if not all(name in _PARTS or _CUT_SHORT.fullmatch(name) for name in names):
            raise FileExistsError(f"{path} exists and is not empty: choose another --out")
        _refuse_links(path)
        try:
            for folder in _FOLDERS:
                (path / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot write to {path}: {error.strerror}; choose another --out",
            ) from error
        with locked(path / ".lock"):
            if (path / "recipe.yaml").exists():  # by another process, in between
                raise FileExistsError(f"{path} already holds a run: choose another --out")
            clear(path)
            _write(path / "environment.json", environment)
            write_atomically(path / "recipe.yaml", recipe.encode())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Return an existing run folder, or raise if it is not one."""
        if not (path / "recipe.yaml").is_file():
            raise FileNotFoundError(
                f"{path} is not a run folder (it has no recipe.yaml): "
                "give the --out of an 'advnorm train'"
            )
        _refuse_links(path)
        _refuse_earlier_version(path)
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """The folder of the weights."""
        return self.path / "checkpoints"

    def recipe_text(self) -> str:
        """Return the recipe as it was written when the run began."""
        path = self.path / "recipe.yaml"
        try:
            return read_text(path)
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not a text file: it is damaged") from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out of the folder for the time of a block.

        Leftovers of killed processes are cleared first.
        """
        with locked(self.path / ".lock") as file:
            self._locked = os.fstat(file.fileno())
            clear(self.path)
            try:
                yield
            finally:
                self._locked = None

    def check(self) -> None:
        """Raise :class:`RunLostError` unless the folder is there, and still the same.

        While a lock file is open no other file has its inode, so the inode tells the folder
        from another one in its place.
        """
        if not self.path.is_dir():
            raise RunLostError(self.path, "was removed or moved")
        try:
            lock = (self.path / ".lock").lstat() if self._locked else None
        except FileNotFoundError:
            lock = None
        if self._locked and not (lock and os.path.samestat(lock, self._locked)):
            raise RunLostError(self.path, "was emptied, or replaced by another folder,")
        if not (self.path / "recipe.yaml").is_file():
            raise RunLostError(self.path / "recipe.yaml", "was removed")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Check the folder before a block that writes to it, and if the block fails."""
        self.check()
        try:
            yield
        except OSError:
            self.check()
            raise

    def recipe(self) -> dict[str, Any]:
        """Return the recipe as plain values."""
        values = load_yaml(self.recipe_text())
        if not isinstance(values, dict):
            raise ValueError("it is not a mapping of keys to values")
        return values

    @property
    def described(self) -> bool:
        """Whether ``environment.json`` exists: a damaged one may have been removed."""
        return (self.path / "environment.json").exists()

    def environment(self) -> Environment:
        """Read ``environment.json``."""
        return read_record(self.path / "environment.json", Environment)

    def compile_decision(self) -> CompileDecision | None:
        """Read ``compile.json``: only a run with ``compile: auto`` has it."""
        path = self.path / "compile.json"
        return read_record(path, CompileDecision) if path.exists() else None

    def write_compile_decision(self, decision: CompileDecision) -> None:
        """Write ``compile.json``."""
        with self.writing():
            _write(self.path / "compile.json", decision)

    def append_epoch(self, epoch: Epoch) -> None:
        """Add a line to ``metrics.jsonl``."""
        self._append("metrics.jsonl", epoch)

    def append_monitored(self, step: MonitoredStep) -> None:
        """Add a line to ``monitor.jsonl``."""
        self._append("monitor.jsonl", step, sync=False)

    def _append(self, name: str, record: Record, *, sync: bool = True) -> None:
        """Add a line to a file, unless the lines before it are gone."""
        path = self.path / name
        line = f"{record.model_dump_json()}\n".encode()
        with self.writing():
            size = path.stat().st_size if path.exists() else 0
            if size != self._sizes.get(name, size):
                raise RunLostError(path, "was removed or changed")
            self._sizes[name] = append(path, line, sync=sync)

    def truncate_monitored(self, step: int) -> None:
        """Keep the lines up to ``step``: steps after the checkpoint are done again."""
        path = self.path / "monitor.jsonl"
        if path.exists():
            kept = [line for line in self.monitored() if line.step <= step]
            text = "".join(line.model_dump_json() + "\n" for line in kept)
            with self.writing():
                write_atomically(path, text.encode())

    def monitored(self) -> list[MonitoredStep]:
        """Read ``monitor.jsonl``; an incomplete last line is left out."""
        return read_lines(self.path / "monitor.jsonl", MonitoredStep)

    def truncate_epochs(self, count: int) -> None:
        """Keep the first ``count`` epochs: those after the checkpoint are done again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = read_bytes(path, LINES).splitlines(keepends=True)
            kept = [line for line in lines if _epoch_of(line) <= count][:count]
            with self.writing():
                write_atomically(path, b"".join(kept))

    def epochs(self) -> list[Epoch]:
        """Read ``metrics.jsonl``; an incomplete last line is left out."""
        return read_lines(self.path / "metrics.jsonl", Epoch)

    def write_result(self, result: Result) -> None:
        """Write ``results/<key>.json``."""
        self._put("results", result.key, result)

    def _put(self, folder: str, name: str, record: Record) -> None:
        with self.writing():
            (self.path / folder).mkdir(exist_ok=True)
            _write(self.path / folder / f"{name}.json", record)

    def results(self) -> list[Result]:
        """Read all results, in the order of their names."""
        paths = sorted((self.path / "results").glob("*.json"))
        return [read_record(path, Result) for path in paths]

    def result(self, key: str) -> Result | None:
        """Read one result, if it exists."""
        path = self.path / "results" / f"{key}.json"
        return read_record(path, Result) if path.exists() else None

    def write_audit(self, audit: Audit) -> None:
        """Write ``audits/<key>.json``, and its flags beside the results it concerns."""
        self._put("audits", audit.key, audit)
        audits = self.audits()
        for result in self.results():
            flagged = with_flags(result, audits)
            if flagged.flags != result.flags:
                self.write_result(flagged)

    def audits(self) -> list[Audit]:
        """Read all audits, in the order of their names."""
        return [
            read_record(path, Audit)
            for path in sorted((self.path / "audits").glob("*.json"))
        ]

    def write_verdicts(self, key: str, verdicts: Verdicts) -> None:
        """Write ``verdicts/<key>.json``."""
        self._put("verdicts", key, verdicts)

    def verdicts(self, key: str) -> Verdicts:
        """Read the verdicts under one condition; an empty record if there are none yet."""
        path = self.path / "verdicts" / f"{key}.json"
        return read_record(path, Verdicts) if path.exists() else Verdicts()

    def write_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Write ``diagnoses/<question>.json``."""
        self._put("diagnoses", diagnosis.question, diagnosis)

    def diagnoses(self) -> list[Diagnosis]:
        """Read all diagnoses, in the order of their names."""
        paths = sorted((self.path / "diagnoses").glob("*.json"))
        return [read_record(path, Diagnosis) for path in paths]

    def examples(self, key: str) -> Path:
        """Return where the example images of one attack are kept."""
        return self.path / "examples" / f"{key}.safetensors"

    def write_examples(self, key: str, content: bytes) -> None:
        """Write ``examples/<key>.safetensors``."""
        with self.writing():
            self.examples(key).parent.mkdir(exist_ok=True)
            write_atomically(self.examples(key), content)


def _epoch_of(line: bytes) -> int:
    """Return the epoch of a line of ``metrics.jsonl``; 0 for a damaged line."""
    try:
        return Epoch.model_validate_json(line).epoch
    except ValidationError:
        return 0


def _refuse_links(path: Path) -> None:
    """Refuse folders that are links: a run would write, or remove files, elsewhere."""
    if path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink() and entry.is_dir():
                    raise ValueError(
                        f"{entry.path} is a link to another folder: put the folder itself "
                        "there (the run folder as a whole may be a link)"
                    )


def _refuse_earlier_version(path: Path) -> None:
    """Refuse a folder with a file, or a section of its recipe, that has an old name."""
    recipe = b""
    with suppress(OSError):  # whoever needs the recipe says what is wrong with it
        recipe = read_bytes(path / "recipe.yaml", TEXT)
    if (path / "watch.jsonl").exists() or _EARLIER_SECTIONS.search(recipe):
        raise ValueError(f"{path} {EARLIER_VERSION}")


def _write(path: Path, record: Record) -> None:
    write_atomically(path, record.model_dump_json(indent=None).encode())
