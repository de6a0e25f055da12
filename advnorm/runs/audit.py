"""Audits a run: checks whether the robustness of its weights is real."""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path

from torch.nn import Module

from advnorm.evaluation.checks.auditor import Auditor
from advnorm.evaluation.checks.context import STRONG
from advnorm.norms import Domain, has_branches, route
from advnorm.norms.route import DOMAINS
from advnorm.progress import Progress
from advnorm.recipe import Recipe
from advnorm.records import Audit, Run
from advnorm.runs.load import first_samples, named_threats, open_run

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
    ``batch_size``, ``weights``, ``branch`` and ``threat`` count here too. There is an audit
    for each threat, by default the recipe's own. Several ranks are refused.
    """
    spec, threats = recipe.evaluation, named_threats(recipe)
    with open_run(
        run,
        recipe,
        root=root,
        device=device,
        progress=progress,
        single_process="an audit looks at all of its samples together",
    ) as loaded:
        model = loaded.model
        batch = first_samples(loaded.data, spec.samples or SAMPLES, loaded.device)
        auditor = Auditor(suite=suite, batch_size=spec.batch_size, seed=recipe.seed)
        audits = []
        for threat, domain in product(threats, _branches(recipe, model)):
            with route(model, domain=domain) if domain else nullcontext():
                audit = auditor.audit(model, batch, threat, loaded.progress).model_copy(
                    update={
                        "weights": loaded.weights,
                        "training": loaded.training,
                        "branch": domain,
                    }
                )
            run.write_audit(audit)
            audits.append(audit)
        return audits


def _branches(recipe: Recipe, model: Module) -> Sequence[Domain | None]:
    """Return the branches of the norms that the recipe names."""
    if not has_branches(model):
        return [None]
    branch = recipe.evaluation.branch
    return DOMAINS if branch == "worst" else [branch]
