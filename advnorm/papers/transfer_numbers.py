"""What other runs make of a run's adversarial examples (galloway2019, Table 12)."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from advnorm.files import write_atomically
from advnorm.progress import Progress
from advnorm.recipe import Recipe, from_yaml
from advnorm.records import Accuracy, Run, TransferMatrix, read_record
from advnorm.runs import transfer_runs
from advnorm.training.checkpoints import newest


def transferred(
    run: Run,
    recipe: Recipe,
    targets: Mapping[str, Run],
    *,
    root: Path | None,
    device: str,
    progress: Progress,
) -> dict[str, Accuracy]:
    """Return each target's accuracy, as ``transfer/NAME``.

    ``recipe`` has the evaluation whose attack is made on ``run``. A target that is the run
    itself answers with its white-box accuracy. What was judged before is read.
    """
    others = {target.path: target for target in targets.values()} | {run.path: run}
    runs = [others.pop(run.path), *others.values()]
    judged = [
        from_yaml(one.recipe_text()).model_copy(update={"evaluation": recipe.evaluation})
        for one in runs
    ]
    asked = json.dumps(
        [recipe.evaluation.model_dump(mode="json"), [one.path.name for one in runs]]
    )
    path = run.path / "answers" / f"{sha256(asked.encode()).hexdigest()[:16]}.json"
    matrix = read_record(path, TransferMatrix) if path.exists() else None
    if matrix is None or not _current(matrix, runs, recipe.evaluation.weights):
        (matrix,) = transfer_runs(
            runs, judged, sources=1, root=root, device=device, progress=progress
        )
        with run.writing():
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, matrix.model_dump_json().encode())
    found = dict(zip(matrix.targets, matrix.accuracies[0], strict=True))
    return {f"transfer/{name}": found[one.path.name] for name, one in targets.items()}


def _current(matrix: TransferMatrix, runs: Sequence[Run], weights: str) -> bool:
    """Tell whether a matrix is of the weights that the runs have now."""
    names = {run.path.name: newest(run.checkpoints, weights) for run in runs}
    return all(name in ("", matrix.weights.get(run)) for run, name in names.items())
