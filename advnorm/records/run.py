"""The run folder: every write is atomic, every read names the file that is wrong."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from advnorm.files import append, locked, read_bytes, read_text, write_atomically
from advnorm.records.audits import Audit, with_flags
from advnorm.records.base import Record
from advnorm.records.cleanup import clear
from advnorm.records.diagnoses import Diagnosis
from advnorm.records.environment import Environment
from advnorm.records.monitoring import Watched
from advnorm.records.reading import LINES, read_lines, read_record
from advnorm.records.results import Epoch, Result, Verdicts
from advnorm.safe_yaml import load as load_yaml

_FOLDERS = ("checkpoints", "results", "verdicts", "examples")
_PARTS = (*_FOLDERS, "environment.json", ".lock")  # all that a beginning may leave behind
_CUT_SHORT = re.compile(r"\.(recipe\.yaml|environment\.json)\.\d+\.tmp")  # and that


class RunLostError(ValueError):
    """A run folder, or what a run needs of it, was taken away from a process at work."""

    def __init__(self, path: Path, what: str, remedy: str = "") -> None:
        super().__init__(
            f"{path} {what} while it was in use: stopped, and nothing more is written "
            f"there; {remedy or 'put it back, or name the run where it is now'}"
        )
        self.path, self.what = path, what


class Run:
    """A run folder. Every write is atomic; every read names the file that is wrong.

    A folder that was removed, or replaced by another one, is not written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: os.stat_result | None = None
        """Of the lock file, while this process has it."""
        self._sizes: dict[str, int] = {}
        """Of the files that grow line by line, after the last line of this process."""

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
        """Return an existing run folder, or say why it is none."""
        if not (path / "recipe.yaml").is_file():
            raise FileNotFoundError(
                f"{path} is not a run folder (it has no recipe.yaml): "
                "give the --out of an 'advnorm train'"
            )
        _refuse_links(path)
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

        What killed processes have left there is cleared first.
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

        While a lock file is open no other has its inode, so that it tells a folder from
        another one that has come in its place.
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
        """Check the folder before a block that writes to it, and where that fails."""
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
            raise ValueError("it is no mapping of keys to values")
        return values

    @property
    def described(self) -> bool:
        """Whether ``environment.json`` is there: a damaged one may have been removed."""
        return (self.path / "environment.json").exists()

    def environment(self) -> Environment:
        """Read ``environment.json``."""
        return read_record(self.path / "environment.json", Environment)

    def append_epoch(self, epoch: Epoch) -> None:
        """Add a line to ``metrics.jsonl``."""
        self._append("metrics.jsonl", epoch)

    def append_watched(self, seen: Watched) -> None:
        """Add a line to ``watch.jsonl``."""
        self._append("watch.jsonl", seen, sync=False)

    def _append(self, name: str, record: Record, *, sync: bool = True) -> None:
        """Add a line to a file, unless the lines before it are gone."""
        path = self.path / name
        line = f"{record.model_dump_json()}\n".encode()
        with self.writing():
            size = path.stat().st_size if path.exists() else 0
            if size != self._sizes.get(name, size):
                raise RunLostError(path, "was removed or changed")
            self._sizes[name] = append(path, line, sync=sync)

    def truncate_watched(self, step: int) -> None:
        """Keep the lines up to ``step``: what came after the checkpoint is seen again."""
        path = self.path / "watch.jsonl"
        if path.exists():
            kept = [line for line in self.watched() if line.step <= step]
            text = "".join(line.model_dump_json() + "\n" for line in kept)
            with self.writing():
                write_atomically(path, text.encode())

    def watched(self) -> list[Watched]:
        """Read ``watch.jsonl``; a last line cut short by a kill is left out."""
        return read_lines(self.path / "watch.jsonl", Watched)

    def truncate_epochs(self, count: int) -> None:
        """Keep the first ``count`` epochs: what came after the checkpoint is done again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = read_bytes(path, LINES).splitlines(keepends=True)
            kept = [line for line in lines if _epoch_of(line) <= count][:count]
            with self.writing():
                write_atomically(path, b"".join(kept))

    def epochs(self) -> list[Epoch]:
        """Read ``metrics.jsonl``; a last line cut short by a kill is left out."""
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
        """Read one result, if it is there."""
        path = self.path / "results" / f"{key}.json"
        return read_record(path, Result) if path.exists() else None

    def write_audit(self, audit: Audit) -> None:
        """Write ``audits/<key>.json``, and its flags beside the results it concerns."""
        self._put("audits", audit.key, audit)
        audits = self.audits()
        for result in self.results():
            told = with_flags(result, audits)
            if told.flags != result.flags:
                self.write_result(told)

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
        """Read the verdicts of one attack; none yet is an empty record."""
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
        """Where the example images of one attack are kept."""
        return self.path / "examples" / f"{key}.safetensors"

    def write_examples(self, key: str, content: bytes) -> None:
        """Write ``examples/<key>.safetensors``."""
        with self.writing():
            self.examples(key).parent.mkdir(exist_ok=True)
            write_atomically(self.examples(key), content)


def _epoch_of(line: bytes) -> int:
    """Return the epoch that a line of ``metrics.jsonl`` is about; 0 for a damaged one."""
    try:
        return Epoch.model_validate_json(line).epoch
    except ValidationError:
        return 0


def _refuse_links(path: Path) -> None:
    """Refuse folders that are links: what a run writes would land, or be removed, there."""
    if path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink() and entry.is_dir():
                    raise ValueError(
                        f"{entry.path} is a link to another folder: put the folder itself "
                        "there (the run folder as a whole may be a link)"
                    )


def _write(path: Path, record: Record) -> None:
    write_atomically(path, record.model_dump_json(indent=None).encode())
