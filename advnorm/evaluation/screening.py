"""Reasons to doubt an evaluation, looked for before, during and after it."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor, nn

from advnorm.data import Batch
from advnorm.evaluation.checks.auditor import flags_of, has_gradients, preserved, probe
from advnorm.evaluation.checks.checklist import larger_radius_weaker, one_step_better
from advnorm.evaluation.checks.context import FEW, Finding
from advnorm.evaluation.checks.history import History
from advnorm.evaluation.checks.memory import remembers
from advnorm.evaluation.checks.outputs import MASKED
from advnorm.evaluation.conditions import Condition
from advnorm.evaluation.samples import Samples
from advnorm.records import Check, Verdicts
from advnorm.threat import Threat

_ONE_STEP = "fgsm"
_PASSES_DIFFER = frozenset({"randomized", "dynamic"})
"""Flags of models whose answers vary anyway: their state cannot be checked."""


class Screening:
    """Checks of a model by a few passes, before and after it is attacked."""

    def __init__(
        self, model: nn.Module, batch: Batch, threat: Threat, history: History
    ) -> None:
        self.model, self.history = model, history
        self.checks = probe(model, Batch(*(tensor[:FEW] for tensor in batch)), threat)
        self.flagged = {check.name for check in self.checks if check.status == "flagged"}

    @property
    def masked(self) -> bool:
        """Whether gradients or scores are suspect."""
        return bool(self.flagged & MASKED)

    def refuse_blind(self, conditions: Iterable[Condition]) -> None:
        """Refuse attacks that need gradients on a model that has none."""
        for condition in conditions:
            own = condition.adaptation is not None and condition.adaptation.changes_search
            follows = condition.searches and condition.needs_gradients and not own
            if follows and not has_gradients(self.checks):
                raise ValueError(
                    f"{condition.name} follows gradients, and none reaches the images: "
                    "something in the model cuts the graph (detach, argmax); repair that, "
                    "or attack with square or hop_skip_jump"
                )

    def flags(self) -> tuple[str, ...]:
        """Return one sentence per flag; call it when all attacks are done."""
        checks = self.checks
        if not self.flagged & _PASSES_DIFFER:
            with preserved(self.model), torch.no_grad():
                checks = (*checks, _check("stateful", remembers(self.history.change())))
        return flags_of(checks)


def first_answers(model: nn.Module, samples: Samples, threat: Threat) -> History:
    """Record the answers of a model before any other query, to detect a memory later."""
    with preserved(model):
        return History(model, next(samples.batches(model, FEW)), threat)


def contradictions(
    conditions: Sequence[Condition], verdicts: Sequence[Verdicts]
) -> list[tuple[str, ...]]:
    """Return the flags of results that contradict each other, a tuple per condition.

    One step that breaks more than many, and a larger radius that breaks less than a
    smaller one, are signs of an attack that does not search well.
    """
    pairs = zip(conditions, verdicts, strict=True)
    searching = [(c, _robust(v)) for c, v in pairs if c.searches]
    flags: dict[str, list[str]] = {condition.key: [] for condition in conditions}
    for (a, robust_a), (b, robust_b) in combinations(searching, 2):
        for finding in _compare(a, robust_a, b, robust_b):
            if finding[1].flagged:
                for condition in (a, b):
                    flags[condition.key].append(_check(*finding).flag)
    return [tuple(dict.fromkeys(flags[condition.key])) for condition in conditions]


def _compare(
    a: Condition, robust_a: Tensor, b: Condition, robust_b: Tensor
) -> Iterable[tuple[str, Finding]]:
    """Yield what two results say of each other."""
    assert a.threat and b.threat
    results = {a.name: robust_a, b.name: robust_b}
    if a.threat == b.threat and _ONE_STEP in results:
        (many,) = (condition for condition in (a, b) if condition.name != _ONE_STEP)
        if many.needs_gradients:
            finding = one_step_better(results[_ONE_STEP], results[many.name], many.name)
            yield "one_step_stronger", finding
    if a.name == b.name and a.threat.name == b.threat.name:
        by_radius = {a.threat.eps: robust_a, b.threat.eps: robust_b}
        yield "not_monotone_in_eps", larger_radius_weaker(dict(sorted(by_radius.items())))


def _robust(verdicts: Verdicts) -> Tensor:
    return torch.tensor(verdicts.robust, dtype=torch.bool)


def _check(name: str, finding: Finding) -> Check:
    status = "flagged" if finding.flagged else "passed"
    return Check(name=name, status=status, numbers=finding.numbers, says=finding.says)
