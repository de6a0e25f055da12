"""Asks questions about a run, or about a model of the user's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, arange, nn

from advnorm.allocator import freed_memory_kept
from advnorm.data import Batch
from advnorm.data.splits import DataSet, TensorSplit
from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.registry import validate_options
from advnorm.draws import permutation
from advnorm.evaluation.engine import check_model
from advnorm.evaluation.inputs import check_labels
from advnorm.evaluation.samples import as_samples
from advnorm.labelled_data import Array, LabelledData
from advnorm.model_state import eval_mode
from advnorm.norms import Domain, active_branch, route
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe, RecipeError, assignment, option
from advnorm.records import Diagnosis, Run
from advnorm.runs.load import LoadedRun, explain_misfit, first_samples, open_run
from advnorm.threat import Threat, check_threat

_CHUNK = 1000
SAMPLES = 200
"""The default number of test samples of a question."""

Questions = Mapping[str, Callable[..., Diagnosis]]
"""Functions of :mod:`advnorm.diagnosis` by name, with their options set."""


def diagnose_model(
    model: nn.Module,
    images: Array | LabelledData,
    labels: Array | None,
    threat: Threat,
    questions: Sequence[str] | Questions,
    *,
    branch: Domain = "adversarial",
    skip: bool = False,
    name: str = "model",
    progress: Progress | None = None,
) -> list[Diagnosis]:
    """Ask why a model works or fails, on some labelled images.

    Args:
        model: Maps images to logits.
        images: Images in ``threat.bounds``, shape (n, channels, height, width) or (n, d);
            or a Dataset or DataLoader of images and labels.
        labels: Their classes, shape (n,); ``None`` with a Dataset or DataLoader.
        threat: The norm ball of questions that attack, such as ``Linf(8 / 255)``.
        questions: Names of ``advnorm list questions``, or what :func:`parse_questions`
            returns where a question has options.
        branch: Of a mixture norm, the one that is asked about.
        skip: Leave out a question that this model cannot answer; otherwise it raises.
        name: What the records call the model.
        progress: Where to report.

    >>> import torch, advnorm
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> images, labels = torch.rand(20, 4), torch.arange(20) % 3
    >>> (dead,) = advnorm.diagnose(model, images, labels, advnorm.Linf(0.1), ["dead"])
    >>> dead.question
    'dead'
    """
    check_threat(threat)
    if isinstance(questions, str):
        raise ValueError(f"questions is a list of names: write [{questions!r}]")
    if not questions:
        raise ValueError("questions is empty: name at least one, such as 'hessian'")
    chosen = questions if isinstance(questions, Mapping) else parse_questions(questions)
    samples = as_samples(images, labels, threat.bounds)
    batch = Batch(samples.images, samples.labels, arange(len(samples.images)))
    _check_model(model, batch, threat)
    context = _Context(threat, branch, lambda: None)
    answers = _answers(model, batch, context, chosen, skip, progress or Quiet())
    return [answer.model_copy(update={"weights": name}) for answer in answers]


def diagnose_run(
    run: Run,
    recipe: Recipe,
    questions: Questions,
    *,
    samples: int = SAMPLES,
    skip: bool = False,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Iterator[Diagnosis]:
    """Answer questions on the first test samples; each answer is written at once.

    ``questions`` is what :func:`parse_questions` returns. With ``skip`` a question that
    this model cannot answer is left out with a line that says why; otherwise it raises.
    ``recipe`` is the run's own; its ``evaluation.weights`` and ``evaluation.branch`` count.
    Several ranks are refused.
    """
    with open_run(
        run,
        recipe,
        root=root,
        device=device,
        progress=progress,
        single_process="a diagnosis looks at all of its samples together",
    ) as loaded:
        batch = first_samples(loaded.data, samples, loaded.device)
        branch: Domain = "clean" if recipe.evaluation.branch == "clean" else "adversarial"
        threat, facts = recipe.threat.build(), dict[str, Any]()
        facts |= {"weights": loaded.weights, "training": loaded.training}
        context = _Context(
            threat,
            branch,
            cache(partial(_class_means, loaded.data)),
            partial(_training_samples, loaded),
        )
        for answer in _answers(
            loaded.model, batch, context, questions, skip, loaded.progress
        ):
            diagnosis = answer.model_copy(update=facts)
            run.write_diagnosis(diagnosis)
            yield diagnosis


def parse_questions(names: Sequence[str], changes: Sequence[str] = ()) -> Questions:
    """Return questions by name with their options set, ``question.option=value`` each."""
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    for change in changes:
        (name, *path), value = assignment(change)
        if len(path) != 1:
            raise RecipeError(
                f"--set takes question.option=value, like hessian.steps=5, not {change!r}"
            )
        if name not in options:
            QUESTIONS[name]  # an unknown one says which exist
            raise RecipeError(f"--set {change}: {name} is not asked; name it too")
        options[name][path[0]] = _numbers(value)
    return {
        name: partial(QUESTIONS[name], **validate_options(name, values))
        for name, values in options.items()
    }


class _Context(NamedTuple):
    """What questions are asked with, beside the model and the images."""

    threat: Threat
    branch: Domain
    training_means: Callable[[], Tensor | None]
    training_samples: Callable[[int], tuple[Tensor, Tensor]] | None = None

    def asked_for(self, question: Callable[..., Diagnosis]) -> dict[str, Any]:
        """Return what a question takes of the training set."""
        wanted = signature(question).parameters
        means, samples = self.training_means, self.training_samples
        return {
            **({"training_means": means()} if "training_means" in wanted else {}),
            **({"training_samples": samples} if "training_samples" in wanted else {}),
        }


def _class_means(data: DataSet) -> Tensor | None:
    """Return the mean training image of each class; ``None`` for data read from files."""
    if not isinstance(data.train, TensorSplit) or not len(data.train):
        return None
    sums = torch.zeros(len(data.classes), *data.shape, dtype=torch.float64)
    for order in torch.split(arange(len(data.train)), _CHUNK):
        batch = next(data.train.batches(order, batch_size=len(order), device=sums.device))
        sums.index_add_(0, batch.labels, batch.images.double())
    counts = torch.bincount(data.train.labels, minlength=len(sums)).double()
    return sums / counts.view(-1, *[1] * len(data.shape))


def _training_samples(loaded: LoadedRun, count: int) -> tuple[Tensor, Tensor]:
    """Return so many training images, drawn by the run's seed, and their labels."""
    train = loaded.data.train
    order = permutation(len(train), loaded.recipe.seed)[:count]
    batch = next(train.batches(order, batch_size=len(order), device=loaded.device))
    return batch.images, batch.labels


def _check_model(model: nn.Module, batch: Batch, threat: Threat) -> None:
    """Try the model on a few images, and refuse what does not fit."""
    few = Batch(*(rows[:8] for rows in batch))
    with explain_misfit(batch.images.shape[1:]):
        classes = check_model(model, few, bounds=threat.bounds)
    check_labels(batch.labels, count=len(batch.images), classes=classes)


def _answers(
    model: nn.Module,
    batch: Batch,
    context: _Context,
    questions: Questions,
    skip: bool,
    progress: Progress,
) -> Iterator[Diagnosis]:
    images = batch.images.to(next(model.parameters(), batch.images).dtype)
    for name, question in questions.items():
        start = perf_counter()
        try:
            with (
                eval_mode(model),
                route(model, domain=context.branch),
                freed_memory_kept(images),
            ):
                answer = question(
                    model,
                    images,
                    batch.labels,
                    threat=context.threat,
                    progress=progress,
                    **context.asked_for(question),
                )
                facts = {"branch": active_branch(model)}
        except (ValueError, NotImplementedError, FloatingPointError) as error:
            if not skip:
                raise
            progress.line(f"{name}: not asked ({error})")
            continue
        yield answer.model_copy(update={**facts, "seconds": perf_counter() - start})


def _numbers(value: Any) -> Any:
    """Turn ``8/255`` into a number, also inside of a list."""
    return [option(item) for item in value] if isinstance(value, list) else option(value)
