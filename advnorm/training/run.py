"""A training run from its recipe to its folder: begin, resume, stop."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from advnorm import models, ranks
from advnorm.allocator import freed_memory_kept
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe, RecipeError, differences, from_yaml, to_yaml
from advnorm.records import Environment, Run, RunLostError
from advnorm.text import shorten
from advnorm.training import checkpoints
from advnorm.training.build import Experiment, build_experiment, choose_device
from advnorm.training.compile_trial import resolve
from advnorm.training.completion import read_completion
from advnorm.training.dry_run import dry_run
from advnorm.training.guards import NotFiniteError
from advnorm.training.loop import fit
from advnorm.training.saver import Saver
from advnorm.training.state import ResumePoint, State, restore
from advnorm.training.step import HALF_SCALE
from advnorm.training.stop import Stop, StoppedError
from advnorm.training.user_inputs import passed_in_python
from advnorm.training.user_model_checks import check_same_file, with_digest


def train(
    recipe: Recipe,
    out: Path | str,
    *,
    root: Path | None = None,
    device: str = "auto",
    resume: bool = False,
    progress: Progress | None = None,
    model: models.Source | str | None = None,
    data: Any = None,
) -> Run:
    """Train ``recipe`` into the folder ``out``; return the run.

    Under torchrun the ranks share each batch, rank 0 writes, and after a restart the run
    resumes by itself. Ranks on several machines need a folder that all can read.

    Args:
        recipe: What to train, such as ``advnorm.recipes.find("digits.pgd")``.
        out: The run folder. It must be new, unless ``resume``.
        root: The folder of data sets; default ``ADVNORM_DATA``.
        device: ``cpu``, ``cuda``, ``cuda:1`` or ``auto``.
        resume: Continue the run in ``out``, bitwise as if it had not stopped.
        progress: Where to report; default nowhere.
        model: A network of your own instead of ``recipe.model``: a module (which is
            copied), a function that returns one, or ``"FILE.py:NAME"``.
        data: Data of your own instead of ``recipe.data``: ``(images, labels)``, a
            ``Dataset`` or a ``DataLoader``; or a pair ``(train, test)`` of these.

    Raises:
        StoppedError: After a signal; everything is saved.
        RunLostError: If the folder, or a part of it, was removed meanwhile.
        NotFiniteError: Before a step with NaN or infinity; the last good checkpoint is on
            disk and named.
        PeerLostError: Another rank or its host is lost; the same is named.

    >>> import tempfile
    >>> from advnorm.recipe import DataSpec
    >>> recipe = Recipe(epochs=1, batch_size=32, data=DataSpec(train=64))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = train(recipe, f"{folder}/run", device="cpu")
    ...     [epoch.step for epoch in run.epochs()]
    [2]
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(
            "recipe is a Recipe, such as advnorm.recipes.find('digits.pgd'), not "
            f"{shorten(recipe)}"
        )
    with passed_in_python(recipe, model, data) as own:
        return _train(
            with_digest(own),
            Path(out),
            root=root,
            device=device,
            resume=resume,
            progress=progress,
        )


def _train(
    recipe: Recipe,
    out: Path,
    *,
    root: Path | None,
    device: str,
    resume: bool,
    progress: Progress | None,
) -> Run:
    with (
        _naming_checkpoint(out),
        ranks.process_group(choose_device(device)),
        ExitStack() as scopes,
    ):
        progress = progress if progress and ranks.is_first() else Quiet()
        resume = resume or _restarted(out)
        ranks.require_shared_file(out, "recipe.yaml")
        if resume:
            _check_same_recipe(recipe, Run.open(out))
        begun = resume and bool(checkpoints.manifests(out / "checkpoints", "state"))
        experiment = build_experiment(recipe, root=root, device=device, begun=begun)
        dry_run(experiment)
        ranks.require_equal(
            to_yaml(recipe) + experiment.data.digest(),
            "the ranks do not have the same recipe and data: give all of them the same",
        )
        _report_initial_run(recipe, progress, begun=begun)
        if not resume:
            ranks.run_on_first(
                lambda: Run.create(out, to_yaml(recipe), _environment(experiment))
            )
            ranks.require_shared_file(out, "recipe.yaml")
        run = Run.open(out)
        ranks.run_on_first(lambda: scopes.enter_context(run.lock()))
        with _explaining_losses(run):
            _fit(resolve(experiment, run, progress), run, progress)
    return run


@contextmanager
def _naming_checkpoint(out: Path) -> Iterator[None]:
    """Where another rank is lost, name the last checkpoint and the resume command."""
    try:
        yield
    except ranks.PeerLostError as lost:
        good = checkpoints.manifests(out / "checkpoints", "state")
        if good:
            path = good[-1].with_suffix(".safetensors")
            lost.args = (f"{lost}. The last good checkpoint is {path}",)
            lost.resume = how_to_resume(out)
        raise


def _report_initial_run(recipe: Recipe, progress: Progress, *, begun: bool) -> None:
    """Report if the initial weights are of an unfinished run."""
    if recipe.init_from is None or begun:
        return
    start = Run.open(Path(recipe.init_from))
    training = read_completion(start, from_yaml(start.recipe_text()).epochs)
    if training and not training.finished:
        progress.line(f"init_from: {start.path} is unfinished: {training}")


def _restarted(out: Path) -> bool:
    """Return whether torchrun restarted these ranks, and they began the run."""
    begun = (
        ranks.all_reduce_max(ranks.restart_count()) > 0 and (out / "recipe.yaml").is_file()
    )
    ours = begun and Run.open(out).environment().launch == ranks.launch_id()
    return bool(ranks.broadcast_text("yes" if ours else ""))


def _environment(experiment: Experiment) -> Environment:
    return Environment.here(
        device=str(experiment.device),
        threads=torch.get_num_threads(),
        ranks=ranks.size(),
        launch=ranks.launch_id(),
    )


def _fit(experiment: Experiment, run: Run, progress: Progress) -> None:
    """Train from the newest checkpoint, or from the start, to the end."""
    saver, state = Saver(experiment, run), _restore_state(experiment, run, progress)
    ranks.broadcast([*experiment.model.parameters(), *experiment.model.buffers()])
    if not ranks.all_reduce_max(len(checkpoints.manifests(run.checkpoints, "state"))):
        saver.save(state)
    allocator = freed_memory_kept(next(experiment.model.parameters(), None))
    with Stop() as stop, _reproducible(), allocator:
        try:
            fit(experiment, run, state, saver, stop=stop, progress=progress)
            ranks.run_on_first(saver.check)
        except StoppedError as stopped:
            saver.save(state)
            stopped.resume = how_to_resume(run.path)
            raise
        except NotFiniteError as error:
            if ranks.is_first():  # the other ranks may be gone
                saver.check()
            good = checkpoints.manifests(run.checkpoints, "state")[-1]
            raise NotFiniteError(
                f"{error} in epoch {state.epoch + 1}, step {state.step + 1}: stopped "
                f"before the optimizer's step. The last good checkpoint is "
                f"{good.with_suffix('.safetensors')}; try a smaller optimizer.lr, or "
                "precision=float32"
            ) from error


@contextmanager
def _explaining_losses(run: Run) -> Iterator[None]:
    """Say what the user can do if the run folder was removed during training."""
    try:
        yield
    except RunLostError as lost:
        raise RunLostError(lost.path, lost.what, _remedy(run, lost.path)) from None


def _remedy(run: Run, lost: Path) -> str:
    """Return what was lost with a part of a run folder, and what the user can do."""
    if lost == run.path:
        return (
            "its weights are lost, unless it was moved: then go on from its last "
            "checkpoint with --resume, else train anew"
        )
    if not checkpoints.manifests(run.checkpoints, "state"):
        return "its weights are lost: train anew in another folder"
    if lost.name == "recipe.yaml":
        return (
            "its weights are of no use without it: put a copy back and go on with: "
            f"{how_to_resume(run.path)}, or train anew in another folder"
        )
    return (
        "what it held is lost, the last weights are not; go on with: "
        f"{how_to_resume(run.path)}"
    )


def how_to_resume(out: Path) -> str:
    """Return the command that resumes a stopped run."""
    recipe = str(out / "recipe.yaml")
    command = ["advnorm", "train", recipe, "--out", str(out), "--resume"]
    return shlex.join([*ranks.launcher_command(), *command, *naming_options()])


def naming_options() -> list[str]:
    """Return the options that name the user's models again in another command."""
    files = [model.name for model in models.models_in_use() if model.digest]
    return [word for name in files for word in ("--set", f"model.name={name}")]


def _check_same_recipe(recipe: Recipe, run: Run) -> None:
    before = from_yaml(run.recipe_text())
    named = {"name": recipe.model.name}
    if recipe.model.digest and before.model.digest:  # the file may have moved
        before = before.model_copy(update={"model": before.model.model_copy(update=named)})
        check_same_file(before.model)
    changed = differences(before, recipe)
    if changed:
        raise RecipeError(
            f"{run.path} was begun with another recipe; these keys differ (run -> given):\n"
            + "\n".join(f"  {line}" for line in changed)
            + f"\nGo on with its own: {how_to_resume(run.path)}"
        )


def _restore_state(experiment: Experiment, run: Run, progress: Progress) -> State:
    """Return a new state, or restore the newest valid checkpoint."""
    warnings: list[str] = []
    checkpoint = checkpoints.load(run.checkpoints, "state", warnings=warnings)
    for warning in warnings:
        progress.line(warning)
    ranks.require_same_files(checkpoint.digest if checkpoint else "", run.path)
    if checkpoint is None:
        if warnings:
            raise ValueError(f"no checkpoint of {run.path} can be read: train it anew")
        if run.epochs():
            raise ValueError(
                f"{run.path} has lost its checkpoints, so that it cannot go on after epoch "
                f"{run.epochs()[-1].epoch}: train it anew, in another folder"
            )
        return State(scale=HALF_SCALE if experiment.recipe.precision == "float16" else 1.0)
    point = ResumePoint.of(checkpoint.facts)
    if point.data != experiment.data.digest():
        raise ValueError(
            f"{run.path} was begun with other data than {experiment.recipe.data.name} "
            "holds now: give the --data that it was begun with, or train anew"
        )
    restore(checkpoint.tensors, experiment.model, experiment.optimizer)
    ranks.run_on_first(partial(run.truncate_epochs, point.epochs))
    state = point.state
    _report_losses(run, state, progress)
    ranks.run_on_first(partial(run.truncate_monitored, state.step))
    progress.line(f"going on from epoch {state.epoch + 1}, step {state.step}")
    return state


def _report_losses(run: Run, state: State, progress: Progress) -> None:
    """Report what was removed from a resumed run; lost best weights are found anew."""
    recorded = len(run.epochs())
    if recorded < state.epoch:
        progress.line(
            f"{run.path / 'metrics.jsonl'} has {recorded} of {state.epoch} epochs: the "
            "record of the others is lost"
        )
    if state.best_score >= 0 and not checkpoints.manifests(run.checkpoints, "best"):
        progress.line(
            "the best weights are lost: the best of the epochs from here on are kept, and "
            "the last with --set evaluation.weights=last"
        )
        state.best_score = -1.0


@contextmanager
def _reproducible() -> Iterator[None]:
    """Restore the caller's random state, and make cuDNN deterministic."""
    deterministic = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.backends.cudnn.deterministic = deterministic
