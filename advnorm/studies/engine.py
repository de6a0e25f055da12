"""The engine of a study: it trains and evaluates runs, and writes the record."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from statistics import mean
from typing import NamedTuple

from advnorm import models
from advnorm.files import write_alone
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe
from advnorm.records import Accuracy, Run, Study, StudyRow, ThreatRecord
from advnorm.runs import evaluate_run
from advnorm.studies.answer import number_of, with_answer
from advnorm.studies.combinations import Combinations, Over
from advnorm.studies.earlier_numbers import earlier_numbers
from advnorm.studies.grid import Workspace, run_tasks
from advnorm.studies.halving import behind, held_out, rung_epochs
from advnorm.studies.run_numbers import (
    TIME,
    RunNumbers,
    column_of,
    headline_threat,
    numbers_of,
)
from advnorm.studies.trained_runs import (
    lock_run,
    read_recipe,
    seconds_of,
    timed,
    train_once,
    wait_for_lock,
)
from advnorm.training.components import evaluation_threats
from advnorm.training.user_inputs import passed_in_python

MEMORY = "memory, MB"


class _Task(NamedTuple):
    """One run: a combination under a seed."""

    label: str
    recipe: Recipe
    workspace: Workspace
    model: str | None
    """FILE.py:NAME that the user has named, for processes that have not run the file."""
    progress: Progress | None


class _HeldOut(NamedTuple):
    """What a shorter training has reached, and what it took."""

    accuracy: Accuracy
    seconds: float


class Engine:
    """The state of a study while it runs."""

    def __init__(
        self,
        recipe: Recipe,
        over: Over,
        seeds: int,
        workspace: Workspace,
        combinations: Combinations,
        progress: Progress | None,
    ) -> None:
        self.recipe, self.seeds, self.workspace = recipe, seeds, workspace
        self.over = {key: tuple(values) for key, values in over.items()}
        self.combinations = combinations
        self.progress = progress or Quiet()
        self.done: dict[str, dict[int, RunNumbers]] = defaultdict(dict)
        self.failed: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self.halving_seconds = 0.0

    def run(self, budget: float | None) -> Study:
        """Do all runs, and return the record."""
        labels = list(self.combinations.recipes)
        if budget is None:
            self._do([(label, seed) for seed in range(self.seeds) for label in labels])
            return self._write()
        for epochs in rung_epochs(self.recipe.epochs):
            labels = self._halve(labels, epochs)
        for seed in range(self.seeds):
            if seed and self._hours_with_another_seed(labels) > budget:
                text = f"the budget of {budget:g} h allows {seed} of {self.seeds} seeds"
                self.notes = dict.fromkeys(labels, text)
                break
            self._do([(label, seed) for label in labels])
        return self._write()

    def take(self, earlier: Study) -> None:
        """Take the numbers of an earlier record, where its runs are still today's."""
        recipes, root = self.combinations.recipes, self.workspace.data
        for label, runs in earlier_numbers(
            earlier, _evaluation_of(self.recipe), recipes, root
        ).items():
            self.done[label].update({s: n for s, n in runs.items() if s < self.seeds})

    def _do(self, jobs: Sequence[tuple[str, int]]) -> None:
        """Train and evaluate runs; write the record after each."""
        jobs = [(label, seed) for label, seed in jobs if seed not in self.done[label]]
        tasks = [self._task(label, seed) for label, seed in jobs]
        on = self.workspace.on
        for count, outcome in enumerate(run_tasks(_measure, tasks, on=on), start=1):
            label, seed = jobs[outcome.number]
            if outcome.result is None:
                self.failed[f"{label}, seed {seed}"] = outcome.failure
            else:
                self.done[label][seed] = outcome.result
            self.progress.update(count, len(tasks), f"runs, {len(self.failed)} failed")
            self._write()

    def _task(self, label: str, seed: int, epochs: int | None = None) -> _Task:
        recipe = self.combinations.recipes[label].replace(seed=seed)
        if epochs is not None:
            recipe = recipe.replace(epochs=min(epochs, recipe.epochs))
        name, alone = recipe.model.name, self.workspace.on == 1
        return _Task(
            label,
            recipe,
            self.workspace,
            model=name if models.is_file_model(name) else None,
            progress=self.progress if alone else None,
        )

    def _halve(self, labels: Sequence[str], epochs: int) -> list[str]:
        """Train the first seed for some epochs; return what is not clearly behind."""
        tasks = [self._task(label, 0, epochs) for label in labels]
        accuracies = {}
        for outcome in run_tasks(_train, tasks, on=self.workspace.on):
            label = labels[outcome.number]
            if outcome.result is None:
                self.failed[f"{label}, seed 0"] = outcome.failure
            else:
                accuracies[label] = outcome.result.accuracy
                self.halving_seconds += outcome.result.seconds
        for group in self._validated_alike(list(accuracies)):
            for label, why in behind({k: accuracies[k] for k in group}).items():
                after = f"after {epochs} of {self.recipe.epochs} epochs"
                self.dropped[label] = f"{after}: {why}"
        self._write()
        return [k for k in labels if k in accuracies and k not in self.dropped]

    def _validated_alike(self, labels: Sequence[str]) -> list[list[str]]:
        """Group combinations whose held-out accuracies are of the same data and attack."""
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for label in labels:
            recipe = self.combinations.recipes[label]
            specs = (recipe.threat, recipe.validation, recipe.data)
            groups[tuple(spec.model_dump_json() for spec in specs)].append(label)
        return list(groups.values())

    def _hours_with_another_seed(self, labels: Collection[str]) -> float:
        """Return the hours of this study if each combination had one seed more.

        Only runs that it has used so far count: to go on after a kill, or in a folder with
        the runs of other studies, decides as if it had done all of them now.
        """
        workers = self.workspace.on if isinstance(self.workspace.on, int) else 1
        used = [n for runs in self.done.values() for n in runs.values()]
        next_seed = sum(
            mean(n.seconds for n in self.done[label].values())
            for label in labels
            if self.done[label]
        )
        spent = self.halving_seconds + sum(n.seconds for n in used)
        return (spent + next_seed) / workers / 3600

    def _write(self) -> Study:
        record = self._record()
        path = self.workspace.out / "study.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(self.workspace.out, "study"):
            write_alone(path, record.model_dump_json(indent=1).encode())
        return record

    def _record(self) -> Study:
        rows = {
            label: self._row(label, self.done[label])
            for label in self.combinations.recipes
            if self.done.get(label)
        }
        threats = [
            ThreatRecord(norm=t.name, eps=t.eps, bounds=t.bounds)
            for t in evaluation_threats(self.recipe)
        ]
        headline = headline_threat(self.recipe, threats)
        everything = [number for runs in self.done.values() for number in runs.values()]
        return with_answer(
            Study(
                recipe=self.recipe.name,
                over=self.over,
                seeds=self.seeds,
                epochs=self.recipe.epochs,
                headline=column_of("robust", headline, len(threats)),
                threat=f"{headline.norm}, eps {headline.eps:.4g}",
                evaluation=_evaluation_of(self.recipe),
                columns=tuple(dict.fromkeys(c for r in rows.values() for c in r.numbers)),
                rows=rows,
                skipped=self.combinations.skipped,
                dropped=self.dropped,
                failed=self.failed,
                machine="; ".join(dict.fromkeys(n.machine for n in everything)),
                seconds=self.halving_seconds
                + sum({n.run: n.seconds for n in everything}.values()),
            )
        )

    def _row(self, label: str, runs: dict[int, RunNumbers]) -> StudyRow:
        seeds = sorted(runs)
        first = runs[seeds[0]].numbers
        counts = self.combinations.plans[label]
        numbers = {
            column: number_of(
                [runs[seed].numbers[column][0] for seed in seeds],
                n,
                least=0.0 if column == TIME else -inf,
            )
            for column, (_, n) in first.items()
            if all(column in runs[seed].numbers for seed in seeds)
        }
        numbers[MEMORY] = number_of([(counts.activations + counts.state) / 1e6], None)
        return StudyRow(
            settings=self.combinations.settings[label],
            seeds=tuple(seeds),
            numbers=numbers,
            runs=tuple(runs[seed].run for seed in seeds),
            flags=tuple(dict.fromkeys(flag for n in runs.values() for flag in n.flags)),
            note=self.notes.get(label, ""),
            branch=runs[seeds[0]].branch,
        )


def _evaluation_of(recipe: Recipe) -> str:
    return recipe.evaluation.model_dump_json(exclude_defaults=True)


def _train(task: _Task) -> _HeldOut:
    """Train a run; return the held-out accuracy of its last epoch, and its time."""
    with _named(task):
        run = _trained(task)
    return _HeldOut(held_out(run.epochs()[-1]), seconds_of(run.path))


def _measure(task: _Task) -> RunNumbers:
    """Train and evaluate a run, or what is left of it."""
    workspace = task.workspace
    with _named(task):
        run = _trained(task)
        with lock_run(run.path), timed(run.path):
            evaluation = task.recipe.evaluation
            recipe = read_recipe(run).model_copy(update={"evaluation": evaluation})
            results = evaluate_run(
                run,
                recipe,
                root=workspace.data,
                device=workspace.device,
                progress=task.progress,
            )
    return RunNumbers(
        run=run.path.name,
        numbers=numbers_of(run, recipe, results),
        flags=tuple(dict.fromkeys(flag for r in results for flag in r.flags)),
        branch=next((r.branch for r in results if r.branch), ""),
        seconds=seconds_of(run.path),
        machine=run.environment().machine if run.described else "",
    )


def _named(task: _Task) -> AbstractContextManager[object]:
    """Run the file of the user's model, in processes that have not."""
    return passed_in_python(task.recipe, task.model) if task.model else nullcontext()


def _trained(task: _Task) -> Run:
    return train_once(
        task.recipe,
        task.workspace.out / "runs",
        root=task.workspace.data,
        device=task.workspace.device,
        progress=task.progress,
    )
