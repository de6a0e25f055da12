"""Read run folders, and group the runs that differ only in their seed."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advnorm.records import (
    Diagnosis,
    Environment,
    Epoch,
    Result,
    Run,
    TrainingProgress,
    over_training,
)
from advnorm.report.completion_marks import UNRECORDED, infer_progress
from advnorm.text import cut

KEYS_OF_A_RUN = ("name", "seed", "out")
"""Recipe keys in which the runs of one group may differ."""
_DIGEST = re.compile(r"[0-9a-f]{16}")
"""The folder of a run that a study or a paper trained."""
_MOST_VALUES = 3
"""The most settings in the name of such a run."""


@dataclass(frozen=True)
class ReportRun:
    """Everything a report takes from one run folder."""

    run: Run
    name: str
    """The folder's name, with as many parents as make it unique.

    Where the folder is named by a digest: the settings in which its group differs from
    others, and the seed.
    """
    recipe: dict[str, str]
    """Dotted keys to values as text: ``{"norm.name": "batch", ...}``."""
    text: str
    epochs: tuple[Epoch, ...]
    results: dict[str, Result]
    environment: Environment | None
    diagnoses: dict[str, Diagnosis]
    """By question, with those that were monitored in training."""
    training: TrainingProgress | None
    """The progress of the run as it is now."""

    @property
    def seed(self) -> str:
        """The seed as the recipe has it."""
        return self.recipe.get("seed", "?")

    def choice(self, kind: str) -> str:
        """Return what the recipe chose, e.g. for ``norm``: ``norm.name``, else ``norm``."""
        return self.recipe.get(f"{kind}.name", self.recipe.get(kind, "?"))

    @property
    def alarms(self) -> tuple[str, ...]:
        """The alarms in training: each text once, with its epochs."""
        by_text: dict[str, list[int]] = {}
        for epoch in self.epochs:
            for alarm in epoch.alarms:
                by_text.setdefault(alarm, []).append(epoch.epoch)
        return tuple(f"{alarm} ({_span(epochs)})" for alarm, epochs in by_text.items())


@dataclass(frozen=True)
class RunGroup:
    """Runs of one recipe that differ only in their seed."""

    label: str
    members: tuple[ReportRun, ...]

    @property
    def one_per_seed(self) -> tuple[ReportRun, ...]:
        """One run a seed: a repeated seed is no independent sample."""
        return tuple({member.seed: member for member in reversed(self.members)}.values())[
            ::-1
        ]

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The progress of unfinished runs, now and when their numbers were measured."""
        texts: dict[str, None] = {}
        for member in self.members:
            results = (result.training for result in member.results.values())
            answers = (answer.training for answer in member.diagnoses.values())
            for training in (member.training, *results, *answers):
                if training and not training.finished:
                    seed = f"seed {member.seed}: " if len(self.members) > 1 else ""
                    texts[f"{seed}{training}"] = None
        return tuple(texts)


def load_groups(runs: Sequence[Run]) -> list[RunGroup]:
    """Read ``runs`` and group them, in their order.

    A run that is listed twice counts once; no run at all is refused.
    """
    if not runs:
        raise ValueError(
            "no run to report on: name at least one run folder, the --out of an "
            "'advnorm train'"
        )
    paths = list(dict.fromkeys(run.path.resolve() for run in runs))
    first = {run.path.resolve(): run for run in reversed(runs)}
    names = _names(paths)
    groups: dict[tuple[tuple[str, str], ...], list[ReportRun]] = {}
    for path in paths:
        loaded = _load(first[path], names[path])
        identity = tuple(sorted(group_recipe(loaded.recipe).items()))
        groups.setdefault(identity, []).append(loaded)
    members = _named_by_settings(list(groups.values()))
    labels = _labels([group[0] for group in members])
    return [RunGroup(label, tuple(g)) for label, g in zip(labels, members, strict=True)]


def group_recipe(recipe: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a flat recipe that all runs of a group have in common.

    Monitoring does not change training, so it is not part of it.
    """
    own = (key for key in recipe if key not in KEYS_OF_A_RUN)
    return {key: recipe[key] for key in own if not key.startswith("monitor.")}


def differences(recipes: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys in which flat recipes differ; a missing key is a difference.

    >>> differences([{"norm": "batch", "eps": "0.1"}, {"norm": "group", "eps": "0.1"}])
    ['norm']
    """
    keys = dict.fromkeys(key for recipe in recipes for key in group_recipe(recipe))
    return [key for key in keys if len({recipe.get(key) for recipe in recipes}) > 1]


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted keys of nested mappings, with values as text.

    >>> dict(flatten({"norm": {"name": "batch", "affine": True}, "seed": 0}))
    {'norm.name': 'batch', 'norm.affine': 'true', 'seed': '0'}
    """
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, bool) or value is None:
        yield prefix, {True: "true", False: "false", None: "none"}[value]
    else:
        yield prefix, str(value)


def _load(run: Run, name: str) -> ReportRun:
    path = run.path / "recipe.yaml"
    try:
        recipe = run.recipe()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({cut(str(error))}): restore it, or leave this run out"
        ) from error
    epochs = tuple(run.epochs())
    training = TrainingProgress.read(
        recipe.get("epochs"), epochs[-1].epoch if epochs else 0
    )
    planned = training.planned if training else None
    monitored = [
        answer.model_copy(update={"training": training})
        for answer in over_training(run.monitored())
    ]
    return ReportRun(
        run=run,
        name=name,
        recipe=dict(flatten(recipe)),
        text=run.recipe_text(),
        epochs=epochs,
        results={r.key: _with_progress(r, epochs, planned) for r in run.results()},
        environment=run.environment() if run.described else None,
        diagnoses={answer.question: answer for answer in (*monitored, *run.diagnoses())},
        training=training,
    )


def _with_progress(result: Result, epochs: Sequence[Epoch], planned: int | None) -> Result:
    """Return a result with the progress of training, or a note that it is not known."""
    if result.training or planned is None:
        return result
    training = infer_progress(result.weights, epochs, planned)
    if training is None:
        return result.model_copy(update={"notes": (*result.notes, UNRECORDED)})
    return result.model_copy(update={"training": training})


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    names = {path: path.name or str(path) for path in paths}
    for depth in range(2, max(len(path.parts) for path in paths) + 1):
        count = Counter(names.values())
        for path in paths:
            if count[names[path]] > 1:
                names[path] = str(Path(*path.parts[-depth:]))
    return names


def _named_by_settings(groups: Sequence[Sequence[ReportRun]]) -> list[list[ReportRun]]:
    """Give runs whose folder is a digest a name that says more, where it is unique."""
    keys = differences([group[0].recipe for group in groups])[:_MOST_VALUES]

    def name_of(run: ReportRun) -> str:
        if not _DIGEST.fullmatch(run.name):
            return run.name
        values = [run.recipe.get(key, "unset") for key in keys]
        return cut(" ".join([*values, f"seed {run.seed}"]))

    def place(run: ReportRun) -> tuple[bool, int, str]:
        named = not _DIGEST.fullmatch(run.name)
        return (named, 0, "") if named else (named, len(run.seed), run.seed)

    groups = [sorted(group, key=place) for group in groups]  # a digest has no order
    names = [[name_of(run) for run in group] for group in groups]
    count = Counter(name for group in names for name in group)
    return [
        [
            replace(run, name=name) if count[name] == 1 else run
            for run, name in zip(group, own, strict=True)
        ]
        for group, own in zip(groups, names, strict=True)
    ]


def _labels(firsts: Sequence[ReportRun]) -> list[str]:
    """Label each group by norm, objective and model, and by what else differs if needed."""
    kinds = ("norm", "objective", "model")
    plain = [" · ".join(run.choice(kind) for kind in kinds) for run in firsts]
    labels = []
    for label, run in zip(plain, firsts, strict=True):
        alike = [r.recipe for r, other in zip(firsts, plain, strict=True) if other == label]
        more = [f"{key} {run.recipe.get(key, 'unset')}" for key in differences(alike)]
        labels.append(" · ".join([label, *more[:3]]))
    count = Counter(labels)
    return [
        f"{label} · {run.name}" if count[label] > 1 else label
        for label, run in zip(labels, firsts, strict=True)
    ]


def _span(epochs: Sequence[int]) -> str:
    if len(epochs) == 1:
        return f"epoch {epochs[0]}"
    return f"{len(epochs)} epochs from {epochs[0]} to {epochs[-1]}"
