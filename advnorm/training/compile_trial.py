r"""``compile: auto``: a trial on the run's own model decides whether compiling pays.

A few steps of training are taken on a copy of the model, plain and compiled. With
:math:`n` steps of the run, a step of :math:`t` seconds plain and :math:`t'` compiled, and
:math:`c` seconds to compile, the model is compiled where

.. math:: c + n t' < n t.

Such a trial would not come out alike in a resumed run, so the decision is kept in the run
folder. Where there is nothing to compile, no C++ compiler, or compiling fails, the run is
eager and says so.
"""

from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from statistics import median
from time import perf_counter

import torch

from advnorm import ranks
from advnorm.gradients import perturbs_statistics
from advnorm.objectives import CERTIFIED
from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.records import CompileDecision, Run
from advnorm.text import on_one_line
from advnorm.training.build import Experiment
from advnorm.training.components import build_optimizer
from advnorm.training.state import State
from advnorm.training.step import Stepper

Clock = Callable[[], float]
TRIAL_STEPS = 4
"""Steps that are timed, after one that warms up or compiles."""
SHORTEST = 5.0
"""Seconds of eager training below which nothing is tried: compiling alone takes longer."""


def decide(experiment: Experiment, *, clock: Clock = perf_counter) -> CompileDecision:
    """Return whether to compile the model of an experiment that is about to begin."""
    if reason := _nothing_to_compile(experiment.recipe):
        return CompileDecision(compiles=False, reason=reason)
    rows = max(1, experiment.batch_size // ranks.size())
    with ExitStack() as scopes:
        scopes.enter_context(ranks.single_process())
        scopes.enter_context(torch.random.fork_rng())
        scopes.callback(torch._dynamo.reset)  # compiled anew, as in a resumed run
        try:
            _, eager = _time_steps(experiment, rows, clock, compiles=False)
        except Exception as error:  # training itself will stop there, and say more
            return _eager(f"a step failed ({on_one_line(error)})")
        steps = experiment.recipe.epochs * experiment.steps_per_epoch
        if steps * eager < SHORTEST:
            return _eager(f"all {steps} steps take about {steps * eager:.1f} s", eager)
        try:
            first, compiled = _time_steps(experiment, rows, clock, compiles=True)
        except Exception as error:  # of a missing compiler, or what it cannot do
            why = on_one_line(error)
            return _eager(f"torch.compile failed ({type(error).__name__}: {why})", eager)
    return weigh(
        steps, eager=eager, compiled=compiled, compiling=max(0.0, first - compiled)
    )


def weigh(
    steps: int, *, eager: float, compiled: float, compiling: float
) -> CompileDecision:
    """Compile if that saves more than it takes.

    >>> weigh(100, eager=0.5, compiled=0.25, compiling=20).compiles
    True
    >>> print(weigh(50, eager=0.5, compiled=0.25, compiling=20))
    compile: auto: eager; 50 steps of 0.5 s against 20 s and steps of 0.25 s
    """
    return CompileDecision(
        compiles=compiling + steps * compiled < steps * eager,
        reason=f"{steps} steps of {eager:.3g} s against {compiling:.3g} s and steps of "
        f"{compiled:.3g} s",
        eager_step=eager,
        compiled_step=compiled,
        compiling=compiling,
    )


def resolve(experiment: Experiment, run: Run, progress: Progress) -> Experiment:
    """Return the experiment with ``compile`` decided: as the run has it, or by a trial."""
    if experiment.recipe.compile != "auto":
        return experiment
    compiles = ranks.run_on_first(lambda: _decision_of(run, experiment, progress).compiles)
    agreed = ranks.broadcast_text("yes" if compiles else "no") == "yes"
    return replace(experiment, recipe=experiment.recipe.replace(compile=agreed))


def _decision_of(run: Run, experiment: Experiment, progress: Progress) -> CompileDecision:
    decision = run.compile_decision()
    if decision is None:
        if run.epochs():
            progress.line(
                f"{run.path} has lost what compile: auto decided; it is tried again, and "
                "the run may not go on bitwise"
            )
        decision = decide(experiment)
        run.write_compile_decision(decision)
        progress.line(str(decision))
    return decision


def _eager(reason: str, seconds: float | None = None) -> CompileDecision:
    return CompileDecision(compiles=False, reason=reason, eager_step=seconds)


def _nothing_to_compile(recipe: Recipe) -> str:
    """Return why ``compile: true`` would be refused, if it would be."""
    if recipe.objective.name in CERTIFIED:
        return f"objective {recipe.objective.name!r} bounds the traced graph"
    if perturbs_statistics(recipe.gradient.name):
        return f"gradient.name={recipe.gradient.name} replaces the batch norms' passes"
    if {"moments", "wasserstein"} & set(recipe.monitor.questions):
        return "the monitor looks at the features of a step"
    return ""


def _time_steps(
    experiment: Experiment, rows: int, clock: Clock, *, compiles: bool
) -> tuple[float, float]:
    """Take steps on a copy of the model; return the seconds of the first and the median."""
    recipe, model = experiment.recipe, deepcopy(experiment.model)
    trial = replace(
        experiment,
        recipe=recipe.replace(compile=compiles),
        model=model,
        optimizer=build_optimizer(recipe, model),
    )
    stepper, train = Stepper(trial), experiment.data.train
    middle = State(epoch=recipe.epochs // 2)  # where schedules have begun
    order, seconds = torch.arange(rows).repeat(TRIAL_STEPS + 1), list[float]()
    for batch in train.batches(order, batch_size=rows, device=experiment.device, epoch=0):
        start = clock()
        stepper(batch, middle)
        if experiment.device.type == "cuda":
            torch.cuda.synchronize(experiment.device)
        seconds.append(clock() - start)
    return seconds[0], median(seconds[1:])
