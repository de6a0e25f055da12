"""Diagnoses of a run and the transfer of its adversarial examples, cached in its folder.

Each is a file in ``answers``, named by a hash of what it depends on. It is used again as
long as the runs have the same weights.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from advnorm.diagnosis import QUESTIONS, REVISIONS
from advnorm.diagnosis.registry import validate_options
from advnorm.files import write_atomically
from advnorm.progress import Progress
from advnorm.recipe import Recipe, to_yaml
from advnorm.records import Accuracy, Diagnosis, Record, Run, TransferMatrix, read_record
from advnorm.runs import diagnose_run, transfer_runs
from advnorm.studies.trained_runs import read_recipe
from advnorm.training.checkpoints import newest

R = TypeVar("R", bound=Record)
QuestionOptions = Mapping[str, object]
"""Options of a question by name, such as ``{"steps": 5}``."""


def diagnose_once(
    run: Run,
    recipe: Recipe,
    question: str,
    options: QuestionOptions,
    *,
    samples: int,
    root: Path | None,
    device: str,
    progress: Progress,
) -> Diagnosis:
    """Answer a question about a run."""
    chosen = partial(QUESTIONS[question], **validate_options(question, options))

    def diagnose() -> Diagnosis:
        (answer,) = diagnose_run(
            run,
            recipe,
            {question: chosen},
            samples=samples,
            root=root,
            device=device,
            progress=progress,
        )
        return answer

    def current(answer: Diagnosis) -> bool:
        weights = newest(run.checkpoints, recipe.evaluation.weights)
        return weights in ("", answer.weights)

    key = [question, chosen.keywords, samples, to_yaml(recipe)]
    key += [REVISIONS[question]] if question in REVISIONS else []
    return _cached(run, key, Diagnosis, current, diagnose)


def transfer_once(
    run: Run,
    recipe: Recipe,
    targets: Mapping[str, Run],
    *,
    root: Path | None,
    device: str,
    progress: Progress,
) -> dict[str, Accuracy]:
    """Return each target's accuracy on a run's adversarial examples.

    ``recipe`` has the evaluation whose attack is made on ``run``. A target that is the run
    itself has its white-box accuracy.
    """
    others = {target.path: target for target in targets.values()} | {run.path: run}
    runs = [others.pop(run.path), *others.values()]
    evaluation = recipe.evaluation

    def transfer() -> TransferMatrix:
        recipes = [
            read_recipe(each).model_copy(update={"evaluation": evaluation}) for each in runs
        ]
        (matrix,) = transfer_runs(
            runs, recipes, sources=1, root=root, device=device, progress=progress
        )
        return matrix

    def current(matrix: TransferMatrix) -> bool:
        names = {
            each.path.name: newest(each.checkpoints, evaluation.weights) for each in runs
        }
        return all(name in ("", matrix.weights.get(run)) for run, name in names.items())

    key = [evaluation.model_dump(mode="json"), [each.path.name for each in runs]]
    matrix = _cached(run, key, TransferMatrix, current, transfer)
    accuracies = dict(zip(matrix.targets, matrix.accuracies[0], strict=True))
    return {name: accuracies[target.path.name] for name, target in targets.items()}


def _cached(
    run: Run,
    key: Sequence[object],
    kind: type[R],
    current: Callable[[R], bool],
    compute: Callable[[], R],
) -> R:
    """Return the record in a run's cache if it is current, else compute and write it."""
    fingerprint = sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = run.path / "answers" / f"{fingerprint}.json"
    if path.exists():
        record = read_record(path, kind)
        if current(record):
            return record
    record = compute()
    with run.writing():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, record.model_dump_json().encode())
    return record
