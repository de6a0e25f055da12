"""The records of training and of evaluation: epochs, results, verdicts, transfers."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from advnorm.records.base import LARGE, Accuracy, Count, Record, Setting, ThreatRecord
from advnorm.records.completion import TrainingProgress, mark_of
from advnorm.records.draws import DrawsSummary, summarize_draws
from advnorm.records.planted import PlantedTest
from advnorm.records.radii import Bracket, RadiiSummary


class Epoch(Record):
    """One line of ``metrics.jsonl``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"rate": "lr"}
    epoch: Count
    """From 1."""
    step: Count
    """Steps since training began."""
    lr: float
    """The learning rate of the last step."""
    eps: float
    """The radius of the last step."""
    loss: float
    """The mean over the samples of the epoch."""
    parts: dict[str, float] = {}
    """The terms of the loss by name, likewise."""
    train: Accuracy
    """On the images that were trained on: adversarial ones where the objective has them."""
    validation_clean: Accuracy | None = None
    """On held-out images; ``None`` in epochs without validation."""
    validation_robust: Accuracy | None = None
    """On the same images under attack, or certified."""
    best: bool = False
    """Whether this is the best epoch so far."""
    alarms: tuple[str, ...] = ()
    """What looks wrong: one class predicted for everything, catastrophic overfitting."""
    seconds: float
    """What the epoch took."""


ConditionKind = Literal[
    "clean",
    "noise",
    "corruption",
    "attack",
    "suite",
    "curve",
    "certificate",
    "statistics",
]
"""What a model is tested with: unchanged images, an adversary, a proof, and so on.

``certificate``: it alone decided, a lower bound that no attack can refute. ``curve``: PGD
at several step counts. ``statistics``: perturbed batch-norm statistics.
"""


ADAPTED = "+adapt"
"""The end of the name of a condition that is searched adaptively."""


class Result(Record):
    """One model under one condition: ``results/<key>.json``."""

    RENAMED: ClassVar[Mapping[str, str]] = {"attack": "condition"}
    condition: str
    """The condition's name as it was written: ``pgd-50x5``."""
    kind: ConditionKind
    """What sort of condition it is."""
    attack: str | None = None
    """Of one attack or a curve: its name without numbers and options, ``pgd``."""
    steps: int | None = None
    """Of one attack or a curve: the number of steps, at most."""
    corruption: str | None = None
    """Of a corruption, or of a data set of corrupted images: its name, ``fog``."""
    severity: int | None = None
    """Of a corruption: from 1 to 5."""
    settings: dict[str, Setting] = {}
    """What else decided the condition, such as step size and restarts."""
    threat: ThreatRecord | None = None
    """``None`` for what has no adversary: clean images and noise."""
    accuracy: Accuracy
    """Samples that are right under the condition."""
    curve: dict[int, Accuracy] = {}
    """Of a curve: the accuracy by step count; the last is ``accuracy``."""
    data: str
    """The name of the data set."""
    other: bool = False
    """Whether this is another data set than the run's own."""
    split: str = "test"
    """Of the data set."""
    weights: str
    """Which checkpoint, and its SHA-256: ``best-00000400 sha256:...``."""
    training: TrainingProgress | None = None
    """How far the run was; ``None`` in records that are older than this field."""
    statistics: Literal["running", "batch", "median"] = "running"
    """Whose statistics the norms used; ``median``: the batch's, around its median."""
    branch: Literal["adversarial", "clean", "worst"] | None = None
    """Of a model with a mixture norm: the branch that answered and was attacked."""
    seed: int
    """Of the attack's random numbers, with the number of the sample."""
    seconds: float
    """What the evaluation took."""
    queries: Count = 0
    """Images that passed the model; 0 in records that did not count them."""
    gradients: Count = 0
    """Of these, passes with a gradient, which cost about three times as much."""
    flags: tuple[str, ...] = ()
    """Reasons to doubt the number; never printed without them."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about how it was measured, such as a fallback."""
    radii: RadiiSummary | None = None
    """Of the condition ``radii``: medians, the curve and its area."""
    draws: DrawsSummary | None = None
    """Of a randomized model: the accuracy over draws; ``accuracy`` is the first draw's."""
    planted: PlantedTest | None = None
    """Of ``standard`` and ``full``: whether its attacks find planted examples."""
    fingerprint: str = ""
    """Of everything that decided it, as in its verdicts."""

    @property
    def key(self) -> str:
        """A file name that says condition, norm and radius."""
        other = self.data if self.other else None
        return result_key(self.condition, self.threat, self.branch, other)

    @property
    def adaptation(self) -> tuple[tuple[str, Setting], ...]:
        """The settings of an adaptive search; empty for any other."""
        own = self.settings.items() if self.condition.endswith(ADAPTED) else ()
        return tuple((key, value) for key, value in own if key.startswith("adapt."))

    @property
    def key_without_branch(self) -> str:
        """The key without the branch of a mixture norm."""
        other = self.data if self.other else None
        return result_key(self.condition, self.threat, data=other)


def result_key(
    condition: str,
    threat: ThreatRecord | None,
    branch: str | None = None,
    data: str | None = None,
) -> str:
    """Name a result: condition, norm, radius; the branch or another data set, if any.

    >>> result_key("pgd-10", ThreatRecord(norm="linf", eps=8 / 255), "clean")
    'pgd-10_linf_0.03137@clean'
    >>> result_key("clean", None, data="mnist-c:fog")
    'clean~mnist-c-fog'
    >>> result_key("pgd-9+step=1/255", ThreatRecord(norm="linf", eps=0.1))
    'pgd-9+step=1of255_linf_0.1'
    """
    name = f"{condition}_{threat.norm}_{threat.eps:.4g}" if threat else condition
    name = name.replace("/", "of")  # it names files
    name = f"{name}@{branch}" if branch else name
    return f"{name}~{re.sub(r'[^A-Za-z0-9.]+', '-', data)}" if data else name


class Verdicts(Record):
    """One verdict per sample: what was predicted, and whether it stayed right."""

    LIMIT: ClassVar[int] = LARGE
    fingerprint: str = ""
    """Of everything that decides them; verdicts of other settings are not gone on with."""
    samples: tuple[int, ...] = ()
    """Their numbers in the split."""
    labels: tuple[int, ...] = ()
    """Their true classes."""
    predictions: tuple[int, ...] = ()
    """Under the attack where it succeeded, else on the clean image."""
    robust: tuple[bool, ...] = ()
    """Whether a sample stayed right."""
    by: tuple[str, ...] = ()
    """The attack that broke a sample; empty if none did, or it was wrong from the start."""
    certified: tuple[bool, ...] = ()
    """Whether a certificate covers a sample, which is then not attacked; or empty."""
    curve: tuple[tuple[bool, ...], ...] = ()
    """Of a curve: whether a sample stayed right, at each step count."""
    radii: tuple[Bracket, ...] = ()
    """Of ``radii``: the largest certified radius of a sample, and the smallest broken one.

    The second is ``None`` where nothing broke the sample.
    """
    batches: tuple[int, ...] = ()
    """Where norms used statistics of the batch: the number of each sample's batch."""
    malicious: tuple[tuple[int, ...], ...] = ()
    """Of each batch, the samples that an adversary moved against the others, if any."""
    draws: tuple[tuple[bool, ...], ...] = ()
    """Of a randomized model: whether a sample stayed right, in each draw.

    The first draw is the verdict.
    """

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Of a randomized model: the share of draws in which a sample stayed right."""
        return tuple(sum(row) / len(row) for row in self.draws)

    def draws_summary(self) -> DrawsSummary | None:
        """Return what the draws say together; ``None`` for a model that has none."""
        return summarize_draws(self.draws) if self.draws else None

    def first(self, count: int) -> Self:
        """Return the verdicts on the first ``count`` samples."""
        each = ("samples", "labels", "predictions", "robust", "by", "certified", "curve")
        rows = (*each, "radii", "draws", "batches")
        return self.model_copy(update={row: getattr(self, row)[:count] for row in rows})

    def accuracy(self) -> Accuracy:
        """Count them."""
        return Accuracy(correct=sum(self.robust), n=len(self.robust))

    def accuracies(self, counts: Sequence[int]) -> dict[int, Accuracy]:
        """Count them at each step count of a curve."""
        return {
            count: Accuracy(correct=sum(row[i] for row in self.curve), n=len(self.curve))
            for i, count in enumerate(counts)
        }


class TransferMatrix(Record):
    """One attack made on each source and tested on each target."""

    attack: str
    """Its name, as a condition is written."""
    settings: dict[str, Setting] = {}
    """What else decided it."""
    threat: ThreatRecord
    """The ball of the attack."""
    data: str
    """The name of the data set."""
    seed: int
    """Of the attack's random numbers."""
    sources: tuple[str, ...]
    """The models that were attacked."""
    targets: tuple[str, ...]
    """The models that were tested."""
    clean: tuple[Accuracy, ...]
    """Of each target, without an adversary."""
    accuracies: tuple[tuple[Accuracy, ...], ...]
    """One row a source, one column a target; where both are one, the white-box accuracy."""
    branches: dict[str, str] = {}
    """Of models with a mixture norm: the branch that was attacked, and that answers."""
    weights: dict[str, str] = {}
    """Of runs: which checkpoint, and its SHA-256."""
    training: dict[str, TrainingProgress] = {}
    """Of runs: how far each was."""
    seconds: float
    """What it took."""

    def __str__(self) -> str:
        head = f"{self.attack}, {self.threat.norm}, eps {self.threat.eps:.4g}, {self.data}"
        rows = [("source \\ target", *map(self._named, self.targets))]
        rows.append(("clean", *(str(a) for a in self.clean)))
        for source, row in zip(self.sources, self.accuracies, strict=True):
            rows.append((self._named(source), *(str(a) for a in row)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([head, *(line.rstrip() for line in lines)])

    def _named(self, name: str) -> str:
        return f"{name}{mark_of(self.training.get(name))}"
