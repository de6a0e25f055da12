"""Audits a run: whether the robustness of its weights is real."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from torch.nn import Module

from advnorm import ranks
from advnorm.evaluation.checks.context import STRONG
from advnorm.evaluation.checks.examiner import Examiner
from advnorm.norms import Domain, MixtureNorm, route
from advnorm.norms.route import DOMAINS
from advnorm.progress import Progress, Quiet
from advnorm.recipe import Recipe
from advnorm.records import Audit, Run
from advnorm.runs.load import first_samples, load_run, named_threats
from advnorm.training.build import choose_device

SAMPLES = 200
"""Test samples of an audit, where ``evaluation.samples`` does not say."""


def audit_run(
    run: Run,
    recipe: Recipe,
    *,
    suite: Sequence[str] = STRONG,
    root: Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Audit]:
    """Audit the run's weights, and flag the results that it concerns.

    ``recipe`` is the run's own, with its ``evaluation`` changed at will: ``samples``,
    ``batch_size``, ``weights`` and ``branch`` count here too, and ``eps`` and ``norm``: an
    audit each, by default at the recipe's radius alone. Under torchrun it is refused.
    """
    progress = progress or Quiet()
    spec, where = recipe.evaluation, choose_device(device)
    with ranks.process_group(where):
        ranks.require_single_process("an audit looks at all of its samples together")
    radii = named_threats(recipe)
    with run.lock():
        subject = load_run(run, recipe, root, where, progress)
        batch = first_samples(subject.data, spec.samples or SAMPLES, subject.device)
        examiner = Examiner(suite=suite, batch_size=spec.batch_size, seed=recipe.seed)
        found = []
        for threat, domain in product(radii, _branches(recipe, subject.model)):
            with route(subject.model, domain=domain) if domain else nullcontext():
                audit = examiner.audit(subject.model, batch, threat, progress).model_copy(
                    update={
                        "weights": subject.weights,
                        "training": subject.training,
                        "branch": domain,
                    }
                )
            run.write_audit(audit)
            found.append(audit)
        return found


def _branches(recipe: Recipe, model: Module) -> Sequence[Domain | None]:
    """Return the branches of a mixture norm that the recipe asks for."""
    if not any(isinstance(layer, MixtureNorm) for layer in model.modules()):
        return [None]
    branch = recipe.evaluation.branch
    return DOMAINS if branch == "worst" else [branch]
