"""What commands work on: run folders, or models of the user's own in their place."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from advnorm.cli.output import is_first_process, say
from advnorm.cli.user_models import is_model, name_models, use_named_model

if TYPE_CHECKING:
    from advnorm.recipe import Recipe
    from advnorm.records import Result, Run

OF_RECIPE = ("data.", "model.", "norm.")
"""The settings of a model of the user's own, beside those of a command."""
_ANSWERS = ("verdicts", "results", "audits", "diagnoses", "answers")
"""Where a run folder has what was measured of a model."""


class Target(NamedTuple):
    """A run folder and the recipe with which a command uses it."""

    run: "Run"
    recipe: "Recipe"
    name: str
    """What the user called it."""


class TargetOptions(NamedTuple):
    """Options for opening run folders, and for making folders of the user's models."""

    of_recipe: Sequence[str] = ()
    """The settings that are not the command's own; see :func:`split_settings`."""
    out: Path | None = None
    data: Path | None = None
    device: str = "auto"


def split_settings(
    changes: Sequence[str] | None, of_recipe: Sequence[str] = OF_RECIPE
) -> tuple[list[str], list[str]]:
    """Return the settings of the model and its data, and those of the command."""
    own = [change for change in changes or [] if change.startswith(tuple(of_recipe))]
    return own, [change for change in changes or [] if change not in own]


@contextmanager
def open_targets(
    names: Sequence[str | Path], changes: Sequence[str], options: TargetOptions
) -> Iterator[list[Target]]:
    """Open run folders; for a model of the user's own, make one that lasts for the block.

    With ``options.out`` that folder is kept, once it has an answer. Beside runs, the model
    is tested on the data of the first one, unless a setting names other data.
    """
    from advnorm.recipe import Recipe
    from advnorm.records import Run

    texts = [str(name) for name in names]
    own = [text for text in texts if is_model(text)]
    if options.out is not None and len(own) != 1:
        raise ValueError("--out keeps the results of one model of yours: name one")
    name_models([*options.of_recipe, *(f"model.name={text}" for text in own)])
    opened = {text: Run.open(Path(text)) for text in texts if text not in own}
    recipes = {
        text: _of_run(run, changes, options.of_recipe) for text, run in opened.items()
    }
    base = Recipe(data=next(iter(recipes.values()), Recipe()).data)
    with TemporaryDirectory(prefix="advnorm-") as folder, _kept_if_used(options.out):
        targets = []
        for number, text in enumerate(texts):
            if text in own:
                place = options.out or Path(folder) / str(number) / Path(text).name
                targets.append(_of_model(text, base, changes, place, options))
            else:
                targets.append(Target(opened[text], recipes[text], text))
        yield targets


@contextmanager
def _kept_if_used(folder: Path | None) -> Iterator[None]:
    """Remove a folder that the block makes, if it fails before the folder has an answer."""
    if folder is None or folder.exists() or not is_first_process():
        yield
        return
    made = [folder, *(parent for parent in folder.parents if not parent.exists())]
    try:
        yield
    except BaseException:
        answers = [path for name in _ANSWERS for path in folder.glob(f"{name}/*")]
        if not answers:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # not there, or not empty: others use it too
                for parent in made[1:]:
                    parent.rmdir()
        raise


def _of_model(
    text: str,
    base: "Recipe",
    changes: Sequence[str],
    place: Path,
    options: TargetOptions,
) -> Target:
    from advnorm.recipe import ModelSpec, override, read
    from advnorm.runs.user_run import make_run

    spec = ModelSpec(name=text, standardize="none")
    own = [change for change in options.of_recipe if not _names_model(change)]
    recipe = override(base.replace(name=text, model=spec), own)
    named = any(change.startswith("norm.name=") for change in own)
    run = make_run(
        recipe, place, root=options.data, device=options.device, norm_is_named=named
    )
    recipe = override(read(run.path / "recipe.yaml"), list(changes))
    return Target(run, recipe, text)


def _of_run(run: "Run", changes: Sequence[str], own: Sequence[str]) -> "Recipe":
    """Return a run's recipe with some settings changed."""
    from advnorm.recipe import override, read

    recipe = read(run.path / "recipe.yaml")
    for change in own:
        if not _names_model(change):
            raise ValueError(
                f"--set {change}: {run.path} keeps the data, model and norm that it was "
                "trained with; evaluation.data names other test samples"
            )
    return override(use_named_model(recipe), list(changes))


def _names_model(change: str) -> bool:
    return change.startswith("model.name=")


def for_each_target(
    targets: Sequence[Target],
    function: "Callable[..., list[Result]]",
    options: TargetOptions,
) -> None:
    """Call a function of ``advnorm.runs`` on every run, and print all results."""
    from advnorm.progress import show_progress
    from advnorm.records import mark_of, run_headlines
    from advnorm.report import comparison_text

    with show_progress() as progress:
        for run, recipe, name in targets:
            progress.line(f"{name}:")
            function(
                run,
                recipe,
                root=options.data,
                device=options.device,
                progress=progress,
            )
    for run, _, name in targets:
        marks = "".join(dict.fromkeys(mark_of(r.training) for r in run.results()))
        for headline in run_headlines(run):
            say(f"{name}: {headline}{marks}")
    say(comparison_text([target.run for target in targets]))


def say_next(targets: Sequence[Target], options: TargetOptions) -> None:
    """Print the command that reports the results, if they are kept."""
    kept = [str(options.out or name) for _, _, name in targets]
    if options.out is None and any(map(is_model, kept)):
        say("next: add --out FOLDER to keep these results")
    else:
        say(f"next: advnorm report {' '.join(kept)} --out report.html")
