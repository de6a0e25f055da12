"""The run folder: every write is atomic, every read names the file that is wrong."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from advnorm.files import append, locked, read_bytes, read_text, write_atomically
from advnorm.records.audits import Audit, with_flags
from advnorm.records.base import Record
from advnorm.records.diagnoses import Diagnosis
from advnorm.records.environment import Environment
from advnorm.records.reading import LINES, read_lines, read_record
from advnorm.records.results import Epoch, Result, Verdicts
from advnorm.records.watched import Watched
from advnorm.safe_yaml import load as load_yaml

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
        _refuse_links(path)
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

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder for the time of a block."""
        return locked(self.path / ".lock")

    def recipe(self) -> dict[str, Any]:
        """Return the recipe as plain values."""
        values = load_yaml(self.recipe_text())
        if not isinstance(values, dict):
            raise ValueError("it is no mapping of keys to values")
        return values

    def write_environment(self, environment: Environment) -> None:
        """Write ``environment.json``."""
        _write(self.path / "environment.json", environment)

    @property
    def described(self) -> bool:
        """Whether ``environment.json`` is there: a damaged one may have been removed."""
        return (self.path / "environment.json").exists()

    def environment(self) -> Environment:
        """Read ``environment.json``."""
        return read_record(self.path / "environment.json", Environment)

    def append_epoch(self, epoch: Epoch) -> None:
        """Add a line to ``metrics.jsonl``."""
        append(self.path / "metrics.jsonl", f"{epoch.model_dump_json()}\n".encode())

    def append_watched(self, seen: Watched) -> None:
        """Add a line to ``watch.jsonl``."""
        line = f"{seen.model_dump_json()}\n".encode()
        append(self.path / "watch.jsonl", line, sync=False)

    def truncate_watched(self, step: int) -> None:
        """Keep the lines up to ``step``: what came after the checkpoint is seen again."""
        path = self.path / "watch.jsonl"
        if path.exists():
            kept = [line for line in self.watched() if line.step <= step]
            text = "".join(line.model_dump_json() + "\n" for line in kept)
            write_atomically(path, text.encode())

    def watched(self) -> list[Watched]:
        """Read ``watch.jsonl``; a last line cut short by a kill is left out."""
        return read_lines(self.path / "watch.jsonl", Watched)

    def truncate_epochs(self, count: int) -> None:
        """Keep the first ``count`` lines: what came after the checkpoint is done again."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = read_bytes(path, LINES).splitlines(keepends=True)[:count]
            write_atomically(path, b"".join(lines))

    def epochs(self) -> list[Epoch]:
        """Read ``metrics.jsonl``; a last line cut short by a kill is left out."""
        return read_lines(self.path / "metrics.jsonl", Epoch)

    def write_result(self, result: Result) -> None:
        """Write ``results/<key>.json``."""
        (self.path / "results").mkdir(exist_ok=True)
        _write(self.path / "results" / f"{result.key}.json", result)

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
            read_record(path, Audit)
            for path in sorted((self.path / "audits").glob("*.json"))
        ]

    def write_verdicts(self, key: str, verdicts: Verdicts) -> None:
        """Write ``verdicts/<key>.json``."""
        (self.path / "verdicts").mkdir(exist_ok=True)
        _write(self.path / "verdicts" / f"{key}.json", verdicts)

    def verdicts(self, key: str) -> Verdicts:
        """Read the verdicts of one attack; none yet is an empty record."""
        path = self.path / "verdicts" / f"{key}.json"
        return read_record(path, Verdicts) if path.exists() else Verdicts()

    def write_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Write ``diagnoses/<question>.json``."""
        (self.path / "diagnoses").mkdir(exist_ok=True)
        _write(self.path / "diagnoses" / f"{diagnosis.question}.json", diagnosis)

    def diagnoses(self) -> list[Diagnosis]:
        """Read all diagnoses, in the order of their names."""
        paths = sorted((self.path / "diagnoses").glob("*.json"))
        return [read_record(path, Diagnosis) for path in paths]

    def examples(self, key: str) -> Path:
        """Where the example images of one attack are kept."""
        return self.path / "examples" / f"{key}.safetensors"


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
