"""A model from a Python file of the user's: FILE.py:NAME on the command line."""

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from torch import nn

from advnorm import ranks
from advnorm.progress import Progress
from advnorm.recipe import Recipe, override
from advnorm.records import Diagnosis
from advnorm.runs.diagnose import Questions, diagnose_model
from advnorm.runs.load import first_samples
from advnorm.training.build import choose_device
from advnorm.training.components import load_data


def is_user_model(text: str) -> bool:
    """Return whether a text names a model in a Python file, and not a run folder.

    >>> is_user_model("mine.py:build"), is_user_model("runs/a")
    (True, False)
    """
    return ".py:" in text


def diagnose_user_model(
    text: str,
    settings: Sequence[str],
    questions: Questions,
    *,
    samples: int,
    skip: bool,
    root: Path | None,
    device: str,
    progress: Progress,
) -> Iterator[Diagnosis]:
    """Answer questions about a model of a file, on the data that ``settings`` name."""
    recipe = override(Recipe(name=text), list(settings))
    where = choose_device(device)
    with ranks.process_group(where):
        ranks.require_single_process("a diagnosis looks at all of its samples together")
    model = load_user_model(text).to(where)
    data = load_data(recipe, root=root)
    images, labels, _ = first_samples(data, samples, where)
    branch = recipe.evaluation.branch
    for name, question in questions.items():  # one at a time: each is printed at once
        yield from diagnose_model(
            model,
            images,
            labels,
            recipe.threat.build(),
            {name: question},
            branch="clean" if branch == "clean" else "adversarial",
            skip=skip,
            name=recipe.name,
            progress=progress,
        )


def load_user_model(text: str) -> nn.Module:
    """Return the model NAME of FILE.py, or what the function of that name returns.

    The file is run as ``python FILE.py`` would run it, except for the code under
    ``if __name__ == "__main__"``. Only a file that the user names is ever run.
    """
    path, name = text.rsplit(":", 1)
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not a file: give your model as FILE.py:NAME")
    sys.path.insert(0, str(file.resolve().parent))  # its neighbours can be imported
    try:
        return _select(runpy.run_path(str(file)), file, name)
    except Exception as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, file)
        where = f"{file}, line {line}" if line else f"{file}"
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{where}: {kind}{error}") from error
    finally:
        sys.path.pop(0)


def _select(values: dict[str, Any], file: Path, name: str) -> nn.Module:
    if name not in values:
        models = [key for key, value in values.items() if isinstance(value, nn.Module)]
        known = f"; its models are {', '.join(models)}" if models else ""
        raise ValueError(f"there is no {name!r}{known}")
    model = values[name]
    if not isinstance(model, nn.Module) and callable(model):
        model = model()
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"{name} is neither a torch.nn.Module nor a function that returns one"
        )
    return model


def _line(error: Exception, file: Path) -> int | None:
    """Return the last line of the file that an error passed through."""
    passed = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(file)]
    return passed[-1] if passed else None
