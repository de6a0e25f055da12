"""Runs the checks: all of them (an audit), or those that a few passes decide (a probe)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from advnorm.attacks import NonFiniteGradientError
from advnorm.data import Batch
from advnorm.evaluation.checks import (  # noqa: F401
    checklist,
    derivatives,
    failures,
    inputs,
    memory,
    outputs,
    planted_check,
    proposals,
    scores,
)
from advnorm.evaluation.checks.context import (
    CHECKS,
    FEW,
    STRONG,
    WEAK,
    AuditContext,
    NotRun,
)
from advnorm.evaluation.checks.history import History
from advnorm.evaluation.checks.proposals import propose
from advnorm.evaluation.checks.significance import count
from advnorm.evaluation.checks.snapshot import TensorSnapshot
from advnorm.evaluation.condition_names import parse_attacks
from advnorm.evaluation.engine import check_forward
from advnorm.evaluation.inputs import (
    check_labels,
    explain_shape,
    one_threat,
    refuse_misplaced_threat,
)
from advnorm.evaluation.samples import AnyModel, as_module, as_samples, isolated
from advnorm.labelled_data import Array, LabelledData
from advnorm.model_state import eval_mode
from advnorm.norms import active_branch
from advnorm.progress import Progress, Quiet
from advnorm.records import Accuracy, Audit, Check, ThreatRecord
from advnorm.threat import Threat

ALL_CHECKS = (
    *outputs.PROBES,
    "standardization_outside",
    "piecewise_constant",
    "masking_layers",
    "unstable_predictions",
    "silent_success",
    "incomplete_optimization",
    "transfer_failure",
    "unconstrained_failure",
    "one_step_stronger",
    "not_monotone_in_eps",
    "above_chance_at_any_eps",
    "more_steps_help",
    "more_restarts_help",
    "black_box_stronger",
    "noise_stronger",
    "transfer_stronger",
    "decisions_stronger",
    "false_robustness",
    "planted_test",
    "stateful",
)
"""All checks, the cheap ones first."""


def audit(  # noqa: PLR0913 (one flat call, for newcomers)
    model: AnyModel,
    images: Array | LabelledData,
    labels: Array | None = None,
    threat: Threat | None = None,
    *,
    checks: Sequence[str] = ALL_CHECKS,
    suite: Sequence[str] = STRONG,
    surrogate: AnyModel | None = None,
    batch_size: int = 250,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Check whether the robustness of ``model`` on these samples is real.

    >>> from advnorm import Linf
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Softmax(1))
    >>> images, labels = torch.rand(8, 1, 8, 8), torch.arange(8)
    >>> "softmax_output" in audit(model, images, labels, Linf(8 / 255)).flagged
    True

    A hundred samples are enough for most checks. The model is put in evaluation for the
    time of the audit; its mode, weights, buffers and the random state are put back.

    Args:
        model: A module or function that maps images in the threat's bounds to logits.
        images: Floats in the threat's bounds, shape ``(n, ...)``; or a Dataset or
            DataLoader of images and labels.
        labels: Class indices, shape ``(n,)``; ``None`` with a Dataset or DataLoader.
        threat: ``Linf(8 / 255)`` or ``L2(0.5)``, with the bounds of a valid image. It
            cannot be left out.
        checks: Names of ``advnorm list checks``; by default all.
        suite: The strong attacks, by name; ``("standard",)`` is AutoAttack's.
        surrogate: Another model of the same classes, for the check of transfer.
        batch_size: Samples attacked together.
        seed: Decides every random number.
        progress: Where to report; by default nowhere.
    """
    refuse_misplaced_threat(labels)
    threat = one_threat(threat)
    with isolated():
        samples, model = as_samples(images, labels, threat.bounds), as_module(model)
        samples.check_images([threat])
        count = len(samples.images)
        batch = next(samples.batches(model, count))
        with preserved(model, seed), explain_shape(samples.images):
            history = History(model, batch, threat)
            classes = check_forward(
                model, Batch(*(t[:8] for t in batch)), bounds=threat.bounds
            )
        check_labels(batch.labels, count=count, classes=classes)
        other = None if surrogate is None else as_module(surrogate)
        auditor = Auditor(checks, suite, other, batch_size=batch_size, seed=seed)
        return auditor.audit(model, batch, threat, progress, history)


def probe(model: nn.Module, batch: Batch, threat: Threat) -> tuple[Check, ...]:
    """Return the checks that a few passes decide: every evaluation can afford them."""
    few = Batch(*(tensor[:FEW] for tensor in batch))
    with preserved(model):
        context = AuditContext(model, few, threat)
        return tuple(run_check(context, name) for name in outputs.PROBES)


def flags_of(checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the warnings beside an accuracy: a sentence for each flagged check."""
    return tuple(check.flag for check in checks if check.status == "flagged")


def has_gradients(checks: Sequence[Check]) -> bool:
    """Return whether gradients reach the input, by the checks of a probe."""
    gradients = [check for check in checks if check.name == "unavailable_gradients"]
    return all(check.numbers.get("available", 1.0) > 0 for check in gradients)


@dataclass(frozen=True)
class Auditor:
    """Runs an audit: the checks, the attacks that they compare, and their settings."""

    checks: Sequence[str] = ALL_CHECKS
    suite: Sequence[str] = STRONG
    surrogate: nn.Module | None = None
    batch_size: int = 250
    seed: int = 0

    def audit(
        self,
        model: nn.Module,
        batch: Batch,
        threat: Threat,
        progress: Progress | None = None,
        history: History | None = None,
    ) -> Audit:
        """Run every check on one batch of samples.

        ``history`` holds the model's first answers, where it was asked before.
        """
        start, progress = perf_counter(), progress or Quiet()
        if threat.name not in ("linf", "l2"):
            raise ValueError(
                f"an audit compares attacks of linf and l2 balls, not of {threat.name}: "
                "use one of these norms, or evaluate"
            )
        if threat.eps <= 0:
            raise ValueError("an audit needs a radius: give an eps > 0, such as 8/255")
        for name in self.checks:
            CHECKS[name]  # an unknown name is refused before anything is run
        for name in self.suite:
            parse_attacks(name)
        with (
            preserved(model, self.seed),
            preserved(self.surrogate or nn.Identity(), self.seed),
        ):
            context = AuditContext(
                model,
                batch,
                threat,
                suite=self.suite,
                surrogate=self.surrogate,
                batch_size=self.batch_size,
                seed=self.seed,
            )
            checks = []
            if "stateful" in self.checks:
                context.history = history or History(model, batch, threat)
            for number, name in enumerate(self.checks, start=1):
                checks.append(run_check(context, name))
                flagged = checks[-1].status == "flagged"
                context.masked |= flagged and name in outputs.MASKED
                progress.update(number, len(self.checks), f"audit: {name}")
            return Audit(
                threat=ThreatRecord(norm=threat.name, eps=threat.eps, bounds=threat.bounds),
                n=len(context.labels),
                **_accuracies(context, checks),
                suite=context.suite,
                checks=tuple(checks),
                proposal=_proposal(context, checks),
                branch=active_branch(model),
                seed=self.seed,
                seconds=perf_counter() - start,
            )


def _accuracies(context: AuditContext, checks: Sequence[Check]) -> dict[str, Accuracy]:
    """Return the accuracies on clean images, under the weak and under all attacks."""
    robust = {"clean": context.correct}
    if any(c.name == "false_robustness" and c.numbers for c in checks):  # both were run
        robust |= {"weak": context.robust_under(WEAK), "strong": context.strongest}
    return {name: Accuracy(correct=count(s), n=len(s)) for name, s in robust.items()}


def _proposal(context: AuditContext, checks: Sequence[Check]) -> str:
    """Return the adaptive search that the flags call for."""
    flagged = [check.name for check in checks if check.status == "flagged"]
    return propose(context.layer_signs, flagged) if flagged else ""


def run_check(context: AuditContext, name: str) -> Check:
    """Run one check: not run if it cannot be, flagged if a gradient is not finite."""
    try:
        flagged, says, numbers = CHECKS[name](context)
    except NotRun as reason:
        return Check(name=name, status="not run", says=str(reason))
    except NonFiniteGradientError as error:
        return Check(name=name, status="flagged", says=str(error))
    except (ValueError, RuntimeError) as error:  # whatever a model raises in a pass
        text = str(error).partition("\n")[0]
        return Check(name=name, status="not run", says=f"a pass failed: {text}")
    status = "flagged" if flagged else "passed"
    return Check(name=name, status=status, numbers=numbers, says=says)


@contextmanager
def preserved(model: nn.Module, seed: int = 0) -> Iterator[None]:
    """Put a model in evaluation mode; restore what passes change, and the random state.

    Its weights are frozen only where gradients are taken: one that optimizes them in a
    prediction is seen doing so.
    """
    snapshot, tensors = TensorSnapshot(model), [*model.parameters(), *model.buffers()]
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    with torch.random.fork_rng(devices), eval_mode(model):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed is for all devices
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            snapshot.restore()
