"""The training loop, on one page, read from top to bottom."""

from functools import partial
from time import perf_counter

from advnorm import ranks
from advnorm.draws import permutation
from advnorm.progress import Progress
from advnorm.records import Accuracy, Epoch, Run
from advnorm.training.build import Experiment
from advnorm.training.guards import alarms
from advnorm.training.monitor import Monitor
from advnorm.training.saver import Saver
from advnorm.training.state import State, Totals
from advnorm.training.step import Stepper
from advnorm.training.stop import Stop
from advnorm.training.validate import Validated, validate


def fit(
    experiment: Experiment,
    run: Run,
    state: State,
    saver: Saver,
    *,
    stop: Stop,
    progress: Progress,
) -> None:
    """Train from ``state`` to the recipe's last epoch.

    ``stop.check()`` raises only where weights, optimizer and state belong together, so that
    the caller can save them.
    """
    recipe, train = experiment.recipe, experiment.data.train
    monitor = Monitor(experiment, run, progress) if recipe.monitor.questions else None
    step = Stepper(experiment, monitor)
    total = recipe.epochs * experiment.steps_per_epoch
    while state.epoch < recipe.epochs:
        start = perf_counter()
        order = permutation(len(train), recipe.seed, "order", state.epoch)
        order = order[: experiment.steps_per_epoch * experiment.batch_size]
        rows, rows_per_batch = ranks.shard_batches(
            order[state.seen * experiment.batch_size :], experiment.batch_size
        )
        batches = train.batches(
            rows,
            batch_size=rows_per_batch,
            device=experiment.device,
            epoch=state.epoch,
        )
        for batch in batches if len(rows) else ():
            stop.check()
            metrics = step(batch, state)
            state.totals.add(experiment.batch_size, *metrics)
            state.seen += 1
            state.step += 1
            progress.update(state.step, total, _progress_text(state))
            if state.seen < experiment.steps_per_epoch:  # the end of an epoch saves anyway
                saver.save_if_due(state)
        stop.check()
        validated = _validation(experiment, state, stop)
        line = _epoch_record(
            experiment, state, step, validated, seconds=perf_counter() - start
        )
        ranks.run_on_first(partial(run.append_epoch, line))
        if line.best:
            state.best_score = _score(experiment, validated)
            saver.save_best(state.step)
        progress.line(_epoch_text(line, recipe.epochs))
        state.epoch, state.seen, state.totals = state.epoch + 1, 0, Totals()
        saver.save(state)


def _validation(experiment: Experiment, state: State, stop: Stop) -> Validated | None:
    """Validate after every k-th epoch and after the last."""
    spec, last = experiment.recipe.validation, state.epoch + 1 == experiment.recipe.epochs
    due = last or (state.epoch + 1) % spec.every == 0
    return validate(experiment, stop) if due and len(experiment.data.validation) else None


def _epoch_record(
    experiment: Experiment,
    state: State,
    step: Stepper,
    validated: Validated | None,
    *,
    seconds: float,
) -> Epoch:
    totals, now = state.totals, state.epoch + (state.seen - 1) / experiment.steps_per_epoch
    train = Accuracy(correct=round(totals.correct), n=totals.count)
    # an attack at a smaller radius does not compare with validation
    full = step.eps(now) >= experiment.threat.eps
    attacked = train if full and {"adversarial", "kl"} & totals.parts.keys() else None
    classes = len(experiment.data.classes)
    return Epoch(
        epoch=state.epoch + 1,
        step=state.step,
        lr=step.lr(now),
        eps=step.eps(now),
        loss=totals.loss / totals.count,
        parts={name: value / totals.count for name, value in totals.parts.items()},
        train=train,
        validation_clean=validated.clean.accuracy() if validated else None,
        validation_robust=validated.robust.accuracy() if validated else None,
        best=validated is not None and _score(experiment, validated) > state.best_score,
        alarms=alarms(attacked, *validated, classes=classes) if validated else (),
        seconds=seconds,
    )


def _score(experiment: Experiment, validated: Validated | None) -> float:
    """Return the held-out accuracy that the best checkpoint maximizes."""
    assert validated is not None
    accuracies = {
        "clean": validated.clean.accuracy().fraction,
        "robust": validated.robust.accuracy().fraction,
    }
    return sum(
        accuracies[name] for name in experiment.recipe.validation.select_by.split("+")
    )


def _progress_text(state: State) -> str:
    totals = state.totals
    loss, accuracy = totals.loss / totals.count, totals.correct / totals.count
    return f"epoch {state.epoch + 1} loss {loss:.3f} accuracy {accuracy:.1%}"


def _epoch_text(line: Epoch, epochs: int) -> str:
    text = f"epoch {line.epoch}/{epochs}: loss {line.loss:.4f}"
    text += f", train {line.train.fraction:.1%}"
    if line.validation_clean and line.validation_robust:
        text += f", validation clean {line.validation_clean.fraction:.1%}"
        text += f" robust {line.validation_robust.fraction:.1%}"
    text += " (best so far)" if line.best else ""
    return "\n".join([text, *(f"  alarm: {alarm}" for alarm in line.alarms)])
