"""Models in Python files of the user's own: FILE.py:NAME.

A file is run by :func:`load_user_model` alone. Nothing calls it with a name that a recipe
holds: only with one that the user has typed on the command line, or passed in Python.
"""

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import nn

from advnorm.files import read_bytes
from advnorm.models.registry import UserModel, is_file_model
from advnorm.models.user_models import Source, entry_of, name_of
from advnorm.text import cut, on_one_line

_MODULE = "user_file"
"""The module of a file's classes. TorchScript needs an identifier here."""
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)]


def as_user_model(model: Source | str) -> UserModel:
    """Return a model that recipes can name: of a file, or passed in Python."""
    if isinstance(model, str):
        return load_user_model(model)
    return UserModel(f"python:{name_of(model)}", entry_of(model, name_of(model)))


def load_user_model(text: str) -> UserModel:
    """Run FILE.py, and return its model NAME, or the function of that name.

    The file is run as ``python FILE.py`` would run it, except for the code under
    ``if __name__ == "__main__"``. Its random numbers do not depend on the caller's.
    """
    path, _, name = text.rpartition(":")
    if not is_file_model(text) or not name or not path:
        raise ValueError(f"{cut(text)} names no model: give your model as FILE.py:NAME")
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file: give your model as FILE.py:NAME")
    digest = sha256(read_bytes(file)).hexdigest()
    with _explained(file), torch.random.fork_rng():
        torch.manual_seed(0)
        values = runpy.run_path(str(file), run_name=_MODULE)
    source = _select(values, name, file)
    return UserModel(text, entry_of(source, name, partial(_explained, file)), digest)


def place_in_files(error: BaseException, names: Sequence[str]) -> str:
    """Return the file and line of the user's code that raised an error, or ``""``.

    ``names`` are those of models, ``FILE.py:NAME``; modules beside a file are the user's
    too. Where that code called advnorm, the error is not the file's own.
    """
    files = [Path(name.rpartition(":")[0]) for name in names if is_file_model(name)]
    folders = {file.resolve().parent for file in files}
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(_PACKAGE):
            return ""
        installed = (
            any(map(path.is_relative_to, _INSTALLED)) or "site-packages" in path.parts
        )
        if path.is_file() and not installed and folders.intersection(path.parents):
            return f"{frame.filename}, line {frame.lineno}"
    return ""


def _select(values: dict[str, Any], name: str, file: Path) -> Source:
    if name not in values:
        known = [key for key, value in values.items() if _may_be_model(value)]
        remedy = f"name one of {', '.join(known)}" if known else "define it"
        raise ValueError(f"{file} has no {name!r}: {cut(remedy)}")
    source: Source = values[name]
    if not isinstance(source, nn.Module) and not callable(source):
        raise ValueError(
            f"{file}: {name} is neither a torch.nn.Module nor a function that returns "
            "one: name another"
        )
    return source


def _may_be_model(value: Any) -> bool:
    """Return whether a value is a module, or a function or class of the file itself."""
    own = getattr(value, "__module__", None) == _MODULE
    return isinstance(value, nn.Module) or (own and callable(value))


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Run the user's code; its neighbours can be imported, its errors name the line."""
    sys.path.insert(0, str(file.resolve().parent))
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line(error, file)
        where = f"{file}, line {line}" if line else f"{file}"
        raise ValueError(f"{where}: {on_one_line(error)}; correct the file") from error
    finally:
        sys.path.pop(0)


def _line(error: BaseException, file: Path) -> int | None:
    """Return the last line of the file that an error passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return error.lineno
    passed = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(file)]
    return passed[-1] if passed else None
